//! The code in docs/users/rust.md is the code of the examples `files` and `order`, which cargo compiles.

const PAGE: &str = include_str!("../../../docs/users/rust.md");

/// The examples, in the order in which the page shows them.
const EXAMPLES: [&str; 2] = [include_str!("../examples/files.rs"), include_str!("../examples/order.rs")];

/// The fenced blocks of Rust, without their fences.
fn rust_blocks(text: &str) -> Vec<&str> {
    text.split("```rust\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```"))
        .map(|(block, _)| block)
        .collect()
}

#[test]
fn the_page_shows_the_examples() {
    let blocks = rust_blocks(PAGE);
    assert_eq!(blocks.len(), EXAMPLES.len(), "the page has one block of Rust for each example");
    for (block, example) in blocks.into_iter().zip(EXAMPLES) {
        assert!(block.starts_with("async fn run"), "{block}");
        assert!(example.ends_with(block), "the page and the example differ: {block}");
    }
}
