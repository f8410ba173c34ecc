//! A real Chromium, driven by its own driver over WebDriver's JSON.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    eventually,
    process::{Launch, Process, Signal, clean},
    scratch,
};

const WITHIN: Duration = Duration::from_secs(30);

/// One window; dropping it closes the browser.
pub struct Browser {
    port: u16,
    session: String,
    _driver: Process,
}

impl Browser {
    pub fn open() -> Browser {
        for program in ["chromium", "chromedriver"] {
            let there = clean(program).arg("--version").output().is_ok_and(|output| output.status.success());
            assert!(there, "there is no {program}: scripts/provision.sh browser installs it");
        }
        let (folder, port) = (scratch::folder("browser"), scratch::port());
        let profile = format!("--user-data-dir={}", folder.join("profile").display());
        let driver = Process::start(&Launch {
            name: "chromedriver".to_owned(),
            command: ["chromedriver".to_owned(), format!("--port={port}")].map(Into::into).into(),
            environment: Vec::new(),
            log: folder.join("log"),
            folder,
            last_signal: Signal::Term,
        });
        let mut browser = Browser { port, session: String::new(), _driver: driver };
        eventually(WITHIN, "the driver is up", || {
            browser.call("GET", "/status", &Value::Null).ok().filter(|status| status["ready"] == true)
        });
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1280,900",
            &profile,
        ];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let made = browser.call("POST", "/session", &capabilities).expect("a session is made");
        browser.session = format!("/session/{}", made["sessionId"].as_str().expect("it has an id"));
        browser
    }

    pub fn go(&self, url: &str) {
        self.post("/url", &json!({"url": url}));
    }

    /// What a function body returns that runs in the page.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until an expression is true in the page.
    pub fn until(&self, expression: &str) {
        eventually(WITHIN, expression, || {
            (self.run(&format!("return !!({expression})")) == Value::Bool(true)).then_some(())
        });
    }

    /// The page's text, as somebody reads it.
    pub fn text(&self) -> String {
        self.run("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Clicks as a person does: what is covered or away cannot be clicked.
    pub fn click(&self, css: &str) {
        let element = self.find(css);
        self.post(&format!("/element/{element}/click"), &json!({}));
    }

    /// Types into a field; `\u{e007}` is the enter key.
    pub fn write(&self, css: &str, text: &str) {
        let element = self.find(css);
        self.post(&format!("/element/{element}/value"), &json!({"text": text}));
    }

    fn find(&self, css: &str) -> String {
        let element = self.post("/element", &json!({"using": "css selector", "value": css}));
        let id = element.as_object().and_then(|element| element.values().next()).and_then(Value::as_str);
        id.unwrap_or_else(|| panic!("there is no {css}: {element}")).to_owned()
    }

    /// A command of the DevTools protocol.
    pub fn command(&self, name: &str, parameters: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({"cmd": name, "params": parameters}))
    }

    /// As a phone or a window of this width has it.
    pub fn resize(&self, width: u32, height: u32, scale: f64, mobile: bool) {
        self.command(
            "Emulation.setDeviceMetricsOverride",
            &json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile}),
        );
    }

    /// `light` or `dark`.
    pub fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.command("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    /// What the window shows, as PNG.
    pub fn photograph(&self, file: &Path) {
        let shot = self.command("Page.captureScreenshot", &json!({"format": "png"}));
        let png = BASE64_STANDARD.decode(shot["data"].as_str().expect("a picture")).expect("in base64");
        fs::write(file, png).expect("the folder is there");
    }

    /// Errors and warnings that the console got since the last call.
    pub fn console(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({"type": "browser"}));
        let entries = entries.as_array().expect("a list").iter();
        let told = entries.filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING");
        told.map(|entry| format!("{}: {}", entry["level"], entry["message"])).collect()
    }

    /// Addresses that were asked since the last call, but for those of the browser's own pages.
    pub fn asked(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({"type": "performance"}));
        let message = |entry: &Value| serde_json::from_str::<Value>(entry["message"].as_str()?).ok();
        let messages = entries.as_array().expect("a list").iter().filter_map(message);
        let requests = messages.filter(|message| message["message"]["method"] == "Network.requestWillBeSent");
        let asked =
            requests.filter_map(|request| request["message"]["params"]["request"]["url"].as_str().map(str::to_owned));
        asked.filter(|url| !url.starts_with("chrome://")).collect()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.call("POST", &format!("{}{path}", self.session), body);
        answer.unwrap_or_else(|error| panic!("{path} {body}: {error}"))
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(WITHIN)).expect("the time is not zero");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).map_err(|error| error.to_string())?;
        let answer = read_answer(&mut stream).map_err(|error| error.to_string())?;
        let mut answer: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        match answer["value"].take() {
            value if value["error"].is_string() => Err(value.to_string()),
            value => Ok(value),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser goes with its session.
        self.call("DELETE", &self.session, &Value::Null).ok();
    }
}

/// The body of an answer of known length.
fn read_answer(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            if let Some(body) = length.and_then(|length| answer.get(end + 4..end + 4 + length)) {
                return Ok(body.to_vec());
            }
        }
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => answer.extend_from_slice(&buffer[..read]),
        }
    }
}
