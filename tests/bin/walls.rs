//! The helper that puts up the walls around a program, for tests whose own `main` is the harness's.

fn main() {
    backstop::walls::enter();
}
