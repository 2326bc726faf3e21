use backstop_redact::Redactor;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ServerResult};

use super::*;

fn waiting() -> Wire {
    let wire = Wire::new(Secrets::new(Redactor::new()));
    let request = CallToolRequest::new(CallToolRequestParams::new("x"));
    let request = ClientRequest::CallToolRequest(request);
    wire.begin(&ClientJsonRpcMessage::request(request, RequestId::Number(7)));
    wire
}

fn read(wire: &Wire, message: &Value) -> Option<ServerJsonRpcMessage> {
    wire.read(&to_raw_value(message).unwrap(), None)
}

/// Spec: Q2, P12
#[test]
fn results_of_calls_are_kept_as_written() {
    for result in [
        r#"{"content": [{"type": "hologram", "data": 1}], "resultType": "complete"}"#,
        r#"{"content": "text", "tools": []}"#,
        r#"{"structuredContent": {"n": 3.10, "m": 18446744073709551616}}"#,
        "{}",
        "null",
    ] {
        let wire = waiting();
        let message = format!(r#"{{"jsonrpc":"2.0","id":"7","result":{result}}}"#);
        let read = wire.read(serde_json::from_str(&message).unwrap(), None).unwrap();
        let ServerJsonRpcMessage::Response(response) = read else { panic!("{read:?}") };
        assert_eq!(response.id, RequestId::Number(7));
        assert!(matches!(response.result, ServerResult::CustomResult(_)), "{result} was read");
        let kept = wire.end(&response.id).result;
        assert_eq!(kept.map(|kept| kept.get().to_owned()).as_deref(), Some(result));
    }
}

/// Spec: P7. As with providers: empty, false and zero say nothing beside an answer.
#[test]
fn empty_errors_beside_a_result_say_nothing() {
    for (error, is_result) in [
        ("{}", true),
        ("{ }", true),
        ("[\n]", true),
        ("\"\"", true),
        ("false", true),
        ("null", true),
        (r#"{"code":0,"message":"","data":null}"#, true),
        (r#"{"code":0,"message":"denied"}"#, false),
        (r#"{"code":1}"#, false),
    ] {
        let wire = waiting();
        let message = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{}},"error":{error}}}"#);
        let read = wire.read(serde_json::from_str(&message).unwrap(), None).unwrap();
        let is_response = matches!(read, ServerJsonRpcMessage::Response(_));
        assert_eq!(is_response, is_result, "{error}");
    }
}

/// Spec: Q2
#[test]
fn batch_over_http_is_read_for_its_answer() {
    let (told, answer) = (r#"{"method":"notifications/message"}"#, r#"{"id":7,"result":{}}"#);
    let (other, by_text) = (r#"{"id":17,"result":{}}"#, r#"{"id":"7","result":{}}"#);
    for (written, expected) in [
        (format!("[{told},{answer}]"), answer),
        (format!("[{answer}]"), answer),
        (answer.to_owned(), answer),
        (format!("[{other},{told},{answer}]"), answer),
        (format!("[{other},{by_text}]"), by_text),
        (format!("[{told},{other}]"), other),
        (format!("[{told}]"), told),
    ] {
        let written = RawValue::from_string(written).unwrap();
        assert_eq!(only_answer(&written, Some(&RequestId::Number(7))).get(), expected);
    }
}

/// Spec: S5
#[test]
fn data_of_an_error_is_told() {
    for (error, expected) in [
        (r#"{"code":-32603,"message":"Internal error","data":"broken"}"#, "Internal error: broken"),
        (r#"{"code":-32603,"message":"","data":{"why":"late"}}"#, r#"{"why":"late"}"#),
        (r#"{"code":-32603,"message":"broken","data":"broken"}"#, "broken"),
        (r#"{"code":-32603,"message":"broken","data":{}}"#, "broken"),
        (r#"{"code":-32602,"message":"no","data":{"supported":["2025-06-18"]}}"#, "no"),
    ] {
        assert_eq!(read_error(error)["message"], expected, "{error}");
    }
    let long = format!(r#"{{"code":1,"message":"m","data":"{}"}}"#, "x".repeat(9_000));
    assert_eq!(read_error(&long)["message"].as_str().unwrap().len(), 4_003);
}

/// Spec: Q9, E10
#[test]
fn rmcp_reads_no_secret() {
    let wire = Wire::new(Secrets::new(Redactor::new()));
    wire.secrets.add("hunter2-hunter2");
    let request = ClientRequest::PingRequest(Default::default());
    wire.begin(&ClientJsonRpcMessage::request(request, RequestId::Number(7)));
    let text = "it is hunter2-hunter2";
    let progress = json!({"progressToken": 1, "progress": 1, "message": text});
    for message in [
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {"message": text}}),
        json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": text}}),
    ] {
        let message = to_raw_value(&message).unwrap();
        let read = wire.unread(&message, None).unwrap().into_owned();
        assert!(read.get().contains("it is [redacted]"), "{read}");
    }
}

/// Spec: Q9
#[test]
fn calls_given_up_are_open_until_answered() {
    let wire = waiting();
    wire.give_up(&RequestId::Number(7));
    assert!(!wire.has_given_up(), "the server never had it");
    let wire = waiting();
    wire.mark_left(&RequestId::Number(7));
    wire.give_up(&RequestId::Number(7));
    assert!(wire.has_given_up());
    assert!(read(&wire, &json!({"jsonrpc": "2.0", "id": 7, "result": {}})).is_none());
    assert!(!wire.has_given_up());
}

/// Spec: Q2
#[test]
fn deep_answers_are_named_for_what_they_are() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for (answer, why) in [
        (format!(r#""result":{{"x":{deep}}}"#), "nested deeper than 120 levels"),
        (format!(r#""error":{{"code":-32000,"message":"no","data":{deep}}}"#), "-32000: no"),
    ] {
        let wire = Wire::new(Secrets::new(Redactor::new()));
        let request = ClientRequest::PingRequest(Default::default());
        wire.begin(&ClientJsonRpcMessage::request(request, RequestId::Number(7)));
        let message = format!(r#"{{"jsonrpc":"2.0","id":7,{answer}}}"#);
        let read = wire.read(serde_json::from_str(&message).unwrap(), None).unwrap();
        let ServerJsonRpcMessage::Error(error) = read else { panic!("{read:?}") };
        let fault = wire.end(&RequestId::Number(7)).fault;
        let said = match fault {
            Some(fault) => fault.to_string(),
            None => format!("{}: {}", error.error.code.0, error.error.message),
        };
        assert!(said.contains(why), "{said}");
    }
}

/// Spec: Q2. A server that cannot read the id of a request answers without one.
#[test]
fn errors_without_an_id_find_their_request() {
    let error = |code: i32| {
        let error = json!({"code": code, "message": "no"});
        to_raw_value(&json!({"jsonrpc": "2.0", "id": null, "error": error})).unwrap()
    };
    let wire = waiting();
    wire.mark_left(&RequestId::Number(7));
    assert!(wire.read(&error(-32601), None).is_none(), "it may be about a notification");
    let read = wire.read(&error(-32601), Some(&RequestId::Number(7)));
    let Some(ServerJsonRpcMessage::Error(answer)) = read else { panic!("{read:?}") };
    assert_eq!(answer.id, Some(RequestId::Number(7)));
    let named = json!({"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32000}});
    let named = to_raw_value(&named).unwrap();
    let wire = waiting();
    assert!(wire.read(&named, None).is_none());
    assert!(wire.read(&named, Some(&RequestId::Number(7))).is_some());
    for code in [-32700, -32600, -32000, -32603, 7] {
        let wire = waiting();
        assert!(wire.read(&error(code), None).is_none(), "the server never had it");
        wire.mark_left(&RequestId::Number(7));
        assert!(wire.read(&error(code), None).is_some(), "{code}");
        assert!(wire.read(&error(code), None).is_none(), "it is answered");
    }
    let wire = waiting();
    wire.mark_left(&RequestId::Number(7));
    wire.state().given_up.insert(RequestId::Number(6));
    assert!(wire.read(&error(-32000), None).is_none(), "it may be about the cancelled call");
    let ping = || ClientRequest::PingRequest(Default::default());
    let wire = Wire::new(Secrets::new(Redactor::new()));
    wire.begin(&ClientJsonRpcMessage::request(ping(), RequestId::Number(8)));
    wire.mark_left(&RequestId::Number(8));
    assert!(wire.read(&error(-32000), None).is_none(), "it is no call");
    let wire = waiting();
    wire.begin(&ClientJsonRpcMessage::request(ping(), RequestId::Number(8)));
    [7, 8].into_iter().for_each(|id| wire.mark_left(&RequestId::Number(id)));
    assert!(wire.read(&error(-32700), None).is_none(), "it may be about either");
}

/// Spec: Q2
#[test]
fn line_of_a_log_is_no_answer() {
    let wire = waiting();
    for line in [
        json!({"id": 7, "error": "minor"}),
        json!({"id": 7, "level": "info", "result": "done"}),
        json!({"id": 7, "error": null}),
    ] {
        assert!(read(&wire, &line).is_none(), "{line}");
    }
    assert!(read(&wire, &json!({"id": 7, "result": {}})).is_some());
    let wire = waiting();
    assert!(read(&wire, &json!({"id": 7, "error": {"message": "no"}})).is_some());
    // The transport knows what is answered.
    let wire = waiting();
    let bare = to_raw_value(&json!({"id": 7, "error": "minor"})).unwrap();
    assert!(wire.read(&bare, Some(&RequestId::Number(7))).is_some());
}

/// Spec: Q2
#[test]
fn noise_before_an_error_hides_no_error() {
    let wire = waiting();
    wire.fail(&RequestId::Number(7), wire.not_json("hello"));
    let error = json!({"code": -32000, "message": "no"});
    assert!(read(&wire, &json!({"jsonrpc": "2.0", "id": 7, "error": error})).is_some());
    assert_eq!(wire.end(&RequestId::Number(7)).fault, None);
}

/// Spec: Q2
#[test]
fn an_answer_to_nothing_is_no_message() {
    let wire = waiting();
    assert!(read(&wire, &json!({"jsonrpc": "2.0", "id": 8, "result": {}})).is_none());
    assert!(read(&wire, &json!({"jsonrpc": "2.0", "id": null, "error": {}})).is_none());
    assert!(read(&wire, &json!({"jsonrpc": "2.0", "id": 7, "result": {}})).is_some());
    assert!(read(&wire, &json!({"jsonrpc": "2.0", "id": 7, "result": {}})).is_none());
    assert!(read(&wire, &json!("hello")).is_none());
}
