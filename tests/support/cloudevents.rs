//! A record as the CloudEvents SDK reads it, by the rules of the Kafka protocol binding.

use ::cloudevents::{
    Event,
    event::SpecVersion,
    message::{
        BinaryDeserializer, BinarySerializer, Encoding, Error, MessageAttributeValue, MessageDeserializer, Result,
        StructuredDeserializer, StructuredSerializer,
    },
};

/// Headers and value of a record.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) headers: &'a [(String, Option<Vec<u8>>)],
    pub(crate) value: Option<&'a [u8]>,
}

/// The event of a record, if the SDK takes it for one.
pub(crate) fn event(headers: &[(String, Option<Vec<u8>>)], value: Option<&[u8]>) -> Result<Event> {
    MessageDeserializer::into_event(Message { headers, value })
}

impl Message<'_> {
    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| {
            let value = value.as_deref().expect("no header is null");
            (name.as_str(), std::str::from_utf8(value).expect("the header is UTF-8"))
        })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.texts().find(|(known, _)| *known == name).map(|(_, text)| text)
    }
}

impl MessageDeserializer for Message<'_> {
    fn encoding(&self) -> Encoding {
        let media_type = self.text("content-type").unwrap_or_default().to_ascii_lowercase();
        match self.text("ce_specversion") {
            _ if media_type.starts_with("application/cloudevents") => Encoding::STRUCTURED,
            Some(_) => Encoding::BINARY,
            None => Encoding::UNKNOWN,
        }
    }
}

impl BinaryDeserializer for Message<'_> {
    fn deserialize_binary<R: Sized, V: BinarySerializer<R>>(self, visitor: V) -> Result<R> {
        let version = SpecVersion::try_from(self.text("ce_specversion").ok_or(Error::WrongEncoding {})?)?;
        let known = version.attribute_names();
        let mut visitor = visitor.set_spec_version(version)?;
        let text = |text: &str| MessageAttributeValue::String(text.to_owned());
        if let Some(media_type) = self.text("content-type") {
            visitor = visitor.set_attribute("datacontenttype", text(media_type))?;
        }
        let attributes = self.texts().filter_map(|(name, value)| Some((name.strip_prefix("ce_")?, value)));
        for (name, value) in attributes.filter(|(name, _)| *name != "specversion") {
            visitor = match known.contains(&name) {
                true => visitor.set_attribute(name, text(value))?,
                false => visitor.set_extension(name, text(value))?,
            };
        }
        match self.value {
            Some(value) => visitor.end_with_data(value.to_vec()),
            None => visitor.end(),
        }
    }
}

impl StructuredDeserializer for Message<'_> {
    fn deserialize_structured<R: Sized, V: StructuredSerializer<R>>(self, visitor: V) -> Result<R> {
        visitor.set_structured_event(self.value.ok_or(Error::WrongEncoding {})?.to_vec())
    }
}
