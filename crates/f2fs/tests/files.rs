//! The check of files: each kind of damage is found, and `fsck.f2fs` finds it, too.

use weir_f2fs::check::Problem;
use weir_f2fs::{BlockAddress, FileReader, Image, Inode, NameArea, NodeId};
use weir_format::{FormatError, Place};
use weir_runtime::{Runtime, Simulation};

use crate::check::Changed;
use crate::image::{Block, ImageFile, MEBIBYTE};
use crate::judge;

/// Bytes of an inode before its addresses, without extra fields.
const ADDRESSES: usize = 360;

/// An inode of an image, and where its block is.
struct Found {
    inode: Inode,
    at: BlockAddress,
}

impl Found {
    fn number(&self) -> NodeId {
        self.inode.number()
    }

    fn place(&self) -> Place {
        Place::Inode(self.number().0)
    }
}

/// What names from the root on lead to.
fn find(image: &ImageFile, path: &[&str]) -> Found {
    let search = async {
        let opened = Image::open(image).await?;
        let mut number = NodeId::ROOT;
        for name in path {
            let directory = opened.inode(number).await?;
            number = opened.find_name(&directory, name.as_bytes()).await?.expect("a name").inode;
        }
        Ok::<_, FormatError>(Found {
            inode: opened.inode(number).await?,
            at: opened.node_entry(number).await?.address(),
        })
    };
    Runtime::simulated(Simulation::default()).block_on(search).unwrap().unwrap()
}

fn put_word(block: &mut Block, at: usize, word: u32) {
    block[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// An image that `sload.f2fs` has filled; `None` without f2fs-tools.
fn filled() -> Option<ImageFile> {
    let image = ImageFile::from_mkfs(200 * MEBIBYTE, &[])?;
    image.fill()?;
    Some(image)
}

/// What our check finds, when `fsck.f2fs` complains as well.
fn problems(changed: &Changed<'_>) -> Vec<(Place, Problem)> {
    let damaged = ImageFile::from_copy(changed.image);
    changed.blocks.iter().for_each(|(block, bytes)| damaged.write(*block, bytes));
    let theirs = judge::find_complaints(&damaged.path()).expect("installed");
    let ours = changed.problems();
    assert!(!theirs.is_empty(), "ours: {ours:?}");
    ours
}

#[test]
fn each_kind_of_damage_of_a_file_is_found() {
    let Some(image) = filled() else { return };
    let large = find(&image, &["large"]);
    let count = |what, stored, counted| Problem::Count { what, stored, counted };

    let mut changed = Changed::new(&image);
    put_word(changed.block(large.at), 12, 2);
    assert_eq!(problems(&changed), [(large.place(), count("its links", 2, 1))]);

    let mut changed = Changed::new(&image);
    let blocks = large.inode.blocks.get();
    put_word(changed.block(large.at), 24, blocks as u32 + 1);
    assert_eq!(problems(&changed), [(large.place(), count("its blocks", blocks + 1, blocks))]);

    let mut changed = Changed::new(&image);
    put_word(changed.block(large.at), ADDRESSES + 4, large.inode.address(0).0);
    let twice = (large.place(), Problem::BlockTwice(large.inode.address(0)));
    assert!(problems(&changed).contains(&twice));

    let mut changed = Changed::new(&image);
    put_word(changed.block(large.at), ADDRESSES, large.at.0);
    let of_nodes = (large.place(), Problem::BlockOfNodes(large.at));
    assert!(problems(&changed).contains(&of_nodes));

    let mut changed = Changed::new(&image);
    put_word(changed.block(large.at), ADDRESSES, 5);
    let outside = (large.place(), Problem::BlockOutside(BlockAddress(5)));
    assert!(problems(&changed).contains(&outside));

    let layout = image.layout();
    let free = layout.block_of(weir_f2fs::SegmentNumber(layout.main_segments() - 1), 7).expect("a block");
    let mut changed = Changed::new(&image);
    put_word(changed.block(large.at), ADDRESSES, free.0);
    assert!(problems(&changed).contains(&(large.place(), Problem::BlockFree(free))));

    // A direct node of the file that is in use, and that the file does not lead to.
    let mut changed = Changed::new(&image);
    put_word(changed.block(large.at), 4052, 0);
    let left = Place::Node(large.inode.nodes[0].get());
    assert!(problems(&changed).contains(&(left, Problem::NodeOfNoFile)));
}

#[test]
fn each_kind_of_damage_of_a_name_is_found() {
    let Some(image) = filled() else { return };
    let (directory, file) = (find(&image, &["a"]), find(&image, &["a", "file-1"]));
    let names = directory.inode.address(0);
    let form = NameArea::BLOCK;
    let slot = |name: &[u8]| {
        let block = image.read_at(names);
        form.find(&block, name, directory.place()).unwrap().map(|found| found.slot)
    };
    // A name in the first block, whichever it is.
    let (name, slot) = (0..700)
        .find_map(|nth| {
            let name = format!("file-{nth}");
            slot(name.as_bytes()).map(|slot| (name, slot))
        })
        .expect("a name");
    let named = find(&image, &["a", &name]);

    let mut changed = Changed::new(&image);
    form.remove(changed.block(names), slot, name.len());
    let gone = problems(&changed);
    assert!(gone.contains(&(Place::Node(named.number().0), Problem::NodeOfNoFile)), "{gone:?}");

    let mut changed = Changed::new(&image);
    form.set_target(changed.block(names), slot, NodeId(50_000), weir_format::FileType::Regular);
    assert!(problems(&changed).contains(&(directory.place(), Problem::NameOfNothing(NodeId(50_000)))));

    let mut changed = Changed::new(&image);
    form.set_target(changed.block(names), slot, file.number(), weir_format::FileType::Regular);
    if named.number() != file.number() {
        let links = Problem::Count { what: "its links", stored: 1, counted: 2 };
        assert!(problems(&changed).contains(&(file.place(), links)));
    }
}
