//! `java.math.BigDecimal`, as far as columns need it: an unscaled integer and how many of its digits are behind the
//! point.

use num_bigint::BigInt;
use num_integer::Integer;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    pub(super) unscaled: BigInt,
    pub(super) scale: i32,
}

impl Decimal {
    pub(super) fn zero() -> Decimal {
        Decimal { unscaled: BigInt::ZERO, scale: 0 }
    }

    /// `-12.3400` has the scale 4; `1e3` the scale -3. None for what is no number, NaN and infinity included.
    pub(super) fn parse(text: &str) -> Option<Decimal> {
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = [whole, fraction].concat();
        let unsigned = digits.strip_prefix(['-', '+']).unwrap_or(&digits);
        if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let unscaled = digits.parse().ok()?;
        Some(Decimal { unscaled, scale: i32::try_from(fraction.len()).ok()?.checked_sub(exponent)? })
    }

    /// With just so many digits behind the point; None if that would lose a digit that is not zero.
    pub(super) fn exactly(self, scale: i32) -> Option<Decimal> {
        let Some(lost) = u32::try_from(self.scale - scale).ok().filter(|&digits| digits > 0) else {
            return Some(self.widened(scale));
        };
        let (unscaled, rest) = self.unscaled.div_rem(&power_of_ten(lost));
        if rest == BigInt::ZERO { Some(Decimal { unscaled, scale }) } else { None }
    }

    /// With just so many digits behind the point, halves rounded away from zero.
    pub(super) fn half_up(self, scale: i32) -> Decimal {
        let Some(lost) = u32::try_from(self.scale - scale).ok().filter(|&digits| digits > 0) else {
            return self.widened(scale);
        };
        let unit = power_of_ten(lost);
        let (whole, rest) = self.unscaled.div_rem(&unit);
        let away = if rest.magnitude() * 2_u8 >= *unit.magnitude() { 1 } else { 0 };
        let unscaled = if self.unscaled < BigInt::ZERO { whole - away } else { whole + away };
        Decimal { unscaled, scale }
    }

    /// With at least so many digits behind the point.
    pub(super) fn widened(self, scale: i32) -> Decimal {
        match u32::try_from(scale - self.scale) {
            Ok(more) => Decimal { unscaled: self.unscaled * power_of_ten(more), scale },
            Err(_) => self,
        }
    }

    /// Without zeros at the end of the fraction: `12.3400` has then the scale 2, and `100` the scale 0.
    pub(super) fn stripped(mut self) -> Decimal {
        let ten = BigInt::from(10);
        while self.scale > 0 {
            let (shorter, rest) = self.unscaled.div_rem(&ten);
            if rest != BigInt::ZERO {
                return self;
            }
            self = Decimal { unscaled: shorter, scale: self.scale - 1 };
        }
        self.widened(0)
    }

    /// Without an exponent: `0.0000001`.
    pub(super) fn plain(&self) -> String {
        let (sign, digits) = match self.unscaled.to_string() {
            text if text.starts_with('-') => ("-", text[1..].to_owned()),
            text => ("", text),
        };
        match usize::try_from(self.scale) {
            Ok(0) => format!("{sign}{digits}"),
            Ok(scale) => {
                let digits = format!("{digits:0>width$}", width = scale + 1);
                let (whole, fraction) = digits.split_at(digits.len() - scale);
                format!("{sign}{whole}.{fraction}")
            }
            Err(_) if self.unscaled == BigInt::ZERO => "0".to_owned(),
            Err(_) => format!("{sign}{digits}{}", "0".repeat(self.scale.unsigned_abs() as usize)),
        }
    }

    /// The nearest double; infinity beyond the greatest.
    pub(super) fn double(&self) -> f64 {
        format!("{}e{}", self.unscaled, -i64::from(self.scale)).parse().unwrap_or(f64::NAN)
    }
}

fn power_of_ten(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn the_scale_is_the_texts() {
        assert_eq!(decimal("-12.3400"), Decimal { unscaled: BigInt::from(-123_400), scale: 4 });
        assert_eq!(decimal("1e3"), Decimal { unscaled: BigInt::from(1), scale: -3 });
        for text in ["NaN", "Infinity", "", ".", "1.2.3", "--1", "1-2", "(1)"] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn digits_are_added_and_dropped() {
        assert_eq!(decimal("12.3400").stripped().plain(), "12.34");
        assert_eq!(decimal("0.00").stripped(), Decimal::zero());
        assert_eq!(decimal("1e3").stripped(), decimal("1000"));
        assert_eq!(decimal("5").exactly(2).unwrap().plain(), "5.00");
        assert_eq!(decimal("5.10").exactly(1).unwrap().plain(), "5.1");
        assert_eq!(decimal("5.15").exactly(1), None);
        assert_eq!(decimal("-1.005").half_up(2).plain(), "-1.01");
        assert_eq!(decimal("1.004").half_up(2).plain(), "1.00");
        assert_eq!(decimal("0.5").half_up(0).plain(), "1");
    }

    #[test]
    fn texts_have_no_exponent() {
        assert_eq!(decimal("-0.0000001").plain(), "-0.0000001");
        assert_eq!(decimal("1e3").plain(), "1000");
        assert_eq!(decimal("-0.05").double(), -0.05);
        assert_eq!(decimal("100000000000000000000").double(), 1e20);
        assert_eq!(decimal("1e400").double(), f64::INFINITY);
    }
}
