/* Changes of files, each with a synchronisation call, of which is said when it has returned. */
#include "tree.h"
#include <termios.h>

static void say(const char *word, const char *root, const char *path) {
    FILE *out = stdout;
    fprintf(out, "%s\t", word);
    if (!strcmp(word, "done") || !strcmp(word, "data")) {
        print_line(out, root, path);
    } else {
        print_name(out, path + strlen(root));
        fputc('\n', out);
    }
    fflush(out);
    if (isatty(fileno(out)))
        tcdrain(fileno(out));
}

/* `only_data` is fdatasync, which need not make times durable. */
static void synchronise(const char *root, const char *path, int only_data) {
    int file = open_file(path, O_RDONLY);
    MUST(only_data ? fdatasync(file) : fsync(file), path);
    close(file);
    say(only_data ? "data" : "done", root, path);
}

static void write_and_synchronise(const char *root, const char *path, off_t at, size_t bytes, int only_data) {
    say("begin", root, path);
    make_file(path, at, bytes);
    synchronise(root, path, only_data);
}

static void synchronise_folder(const char *path) {
    int file = open_file(path, O_RDONLY | O_DIRECTORY);
    MUST(fsync(file), path);
    close(file);
}

static void take_step(const char *root, unsigned nth) {
    enum { KINDS = 13 };
    unsigned round = nth / KINDS;
    const char *folder = path_of("%s/folder-%u", root, round % 8);
    const char *base = path_of("%s/base-%u", folder, (unsigned)(draw() % 8));
    const char *inside = path_of("%s/inline-%u", folder, round);
    const char *grows = path_of("%s/grows-%u", folder, round);
    switch (nth % KINDS) {
    case 0: write_and_synchronise(root, inside, 0, draw() % 3000, 0); break;
    case 1: write_and_synchronise(root, grows, 0, draw() % 300000, 0); break;
    case 2: write_and_synchronise(root, grows, size_of(grows), draw() % 20000, 0); break;
    case 3: write_and_synchronise(root, base, (off_t)(draw() % 30000), draw() % 9000, 0); break;
    case 4: write_and_synchronise(root, grows, (off_t)(draw() % 100000) * 1000, draw() % 9000, 1); break;
    case 5:
        say("begin", root, base);
        MUST(truncate(base, size_of(base) / 2), base);
        make_file(base, size_of(base), draw() % 5000);
        synchronise(root, base, 0);
        break;
    case 6:
        say("begin", root, grows);
        set_attribute(grows, "user.step", draw() % 60);
        set_attribute(grows, "user.large", round % 3 ? 10 : 2000);
        synchronise(root, grows, 0);
        break;
    case 7: {
        const char *renamed = path_of("%s/renamed-%u", folder, round);
        say("begin", root, inside);
        say("begin", root, renamed);
        MUST(rename(inside, renamed), inside);
        synchronise(root, renamed, 0);
        say("gone", root, inside);
        break;
    }
    case 8: {
        const char *linked = path_of("%s/linked-%u", folder, round);
        say("begin", root, grows);
        say("begin", root, linked);
        MUST(link(grows, linked), grows);
        synchronise(root, linked, 0);
        say("done", root, grows);
        break;
    }
    case 9: {
        const char *made = path_of("%s/made-%u", folder, round);
        make_folder(made);
        write_and_synchronise(root, path_of("%s/file", made), 0, draw() % 10000, 0);
        break;
    }
    case 10: {
        const char *renamed = path_of("%s/renamed-%u", folder, round);
        say("begin", root, renamed);
        MUST(unlink(renamed), renamed);
        synchronise_folder(folder);
        say("gone", root, renamed);
        break;
    }
    case 11: {
        /* Nothing is said of these. The second keeps its blocks without a name. */
        make_file(path_of("%s/noise-%u", folder, round % 4), (off_t)(draw() % 100000), draw() % 200000);
        const char *lost = path_of("%s/lost", root);
        int file = open_file(lost, O_RDWR | O_CREAT);
        write_at(file, lost, 0, 50000);
        MUST(unlink(lost), lost);
        break;
    }
    default: {
        const char *new = path_of("%s/new", folder);
        make_file(new, 0, draw() % 50000);
        int file = open_file(new, O_RDONLY);
        MUST(fsync(file), new);
        close(file);
        say("begin", root, base);
        MUST(rename(new, base), base);
        synchronise_folder(folder);
        say("done", root, base);
    }
    }
}

void make_and_synchronise(const char *root, unsigned steps) {
    for (unsigned folder = 0; folder < 8; folder++) {
        make_folder(path_of("%s/folder-%u", root, folder));
        for (unsigned file = 0; file < 8; file++)
            make_file(path_of("%s/folder-%u/base-%u", root, folder, file), 0, 10000 * file);
    }
    sync();
    for (unsigned nth = 0; nth < steps; nth++)
        take_step(root, nth);
    puts("end");
    fflush(stdout);
    pause();
}
