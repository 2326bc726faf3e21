fn main() {
    backstop_environment::enter();
}
