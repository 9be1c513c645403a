// write-file-atomic under power cuts: what it promises is that a file is one of its versions, whole.

const fs = require('fs');

const text = (number) => `version ${number}\n`.repeat(600);

const commands = {
  setup: () => fs.writeFileSync('data', text(0)),

  run: () => {
    const write = require('write-file-atomic');
    for (const number of [1, 2, 3]) {
      write.sync('data', text(number));
      fs.appendFileSync(process.env.WEIR_ACK, `${number}\n`);
    }
  },

  check: () => {
    const found = fs.readFileSync('data', 'utf8');
    if (![0, 1, 2, 3].some((number) => found === text(number))) {
      console.log(`data is no version, and has ${found.length} bytes`);
      process.exit(1);
    }
  },
};

commands[process.argv[2]]();
