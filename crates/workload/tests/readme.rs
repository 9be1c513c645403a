//! The code in README.md is the code of the example `order`, which cargo compiles.

const README: &str = include_str!("../../../README.md");
const EXAMPLE: &str = include_str!("../examples/order.rs");

/// The first fenced block of Rust, without its fences.
fn rust_block(text: &str) -> Option<&str> {
    text.split_once("```rust\n")?.1.split_once("```").map(|(block, _)| block)
}

#[test]
fn the_readme_shows_the_example() {
    let block = rust_block(README).expect("README.md has a block of Rust");
    assert!(block.starts_with("async fn run"), "{block}");
    assert!(EXAMPLE.ends_with(block), "README.md and examples/order.rs differ");
}
