//! `[traces]`: what it means.

use hyper::Uri;
use url::Url;

/// The path of OTLP's traces below a collector's address.
const PATH: &str = "v1/traces";

/// Where spans go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracesTo {
    /// With the path of traces.
    pub endpoint: Uri,
}

impl TracesTo {
    /// Of a collector's address, with the path of traces or without. The error is what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<TracesTo, String> {
        let flawed = |why: &str| format!("{why}; write the collector's address, as in \"http://collector:4318\"");
        let mut url = Url::parse(text).map_err(|error| flawed(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(flawed("it is neither http nor https"));
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(flawed("it has more than host, port and path"));
        }
        let path = url.path().trim_end_matches('/').to_owned();
        if !path.ends_with(PATH) {
            url.set_path(&format!("{path}/{PATH}"));
        }
        let endpoint = url.as_str().parse().map_err(|_| flawed("it is no address that HTTP takes"))?;
        Ok(TracesTo { endpoint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_added_once() {
        let endpoint = |text| TracesTo::parse(text).map(|to| to.endpoint.to_string());
        for (text, expected) in [
            ("http://collector:4318", "http://collector:4318/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/v1/traces"),
            ("https://traces.example.com/otlp/v1/traces", "https://traces.example.com/otlp/v1/traces"),
            ("https://traces.example.com/otlp", "https://traces.example.com/otlp/v1/traces"),
        ] {
            assert_eq!(endpoint(text).as_deref(), Ok(expected));
        }
        for text in ["collector:4318", "grpc://collector:4317", "http://me:secret@collector", "http://c/?token=secret"]
        {
            let problem = endpoint(text).unwrap_err();
            assert!(problem.contains("http://collector:4318") && !problem.contains("secret"), "{problem}");
        }
    }
}
