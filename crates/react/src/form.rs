//! The form of an answer, in the way that the provider supports.

use backstop_provider::{ModelRequest, OutputSchema, OutputSupport, Provider};
use backstop_react_machine::without_instruction;
use layer0::message::{Message, Transcript};

/// Removes the form, or the instructions about it, if the provider does not need them.
pub(crate) fn settle(request: &mut ModelRequest, provider: &dyn Provider) {
    let Some(output) = &request.output else { return };
    match provider.output_support(request) {
        OutputSupport::Constrained => {}
        OutputSupport::Native => request.messages = remove_form_text(&request.messages, output),
        _ => request.output = None,
    }
}

/// Removes the text about the form from the instructions. The record keeps it: another provider may need it.
fn remove_form_text(messages: &Transcript, output: &OutputSchema) -> Transcript {
    let mut left = Transcript::default();
    for (place, message) in messages.messages().iter().enumerate() {
        match &**message {
            Message::System { content } if place == 0 => {
                let content = without_instruction(content, &output.schema);
                if !content.is_empty() {
                    left.push(Message::system(content));
                }
            }
            _ => left.push_shared(message.clone()),
        }
    }
    left
}
