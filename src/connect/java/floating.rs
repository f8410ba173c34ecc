//! `Double.toString` and `Float.toString` as Java 17 has them.
//!
//! Java 19 prints the shortest decimal that reads back as the same number. Java 17, on which the golden records were taken,
//! does not always: 2e23 is `1.9999999999999998E23`. It generates digits after Steele and White, with an error bound that
//! is taken from the number's width, not from its neighbours, and stops at the first digit that lies within it.

use num_bigint::BigUint;
use num_integer::Integer;

/// Bits of a double's significand, the hidden one included.
const WIDTH: i32 = 53;

pub(crate) fn double(value: f64) -> String {
    let fraction = value.to_bits() & ((1 << 52) - 1);
    let biased = (value.to_bits() >> 52) as i32 & 0x7ff;
    text(value.is_sign_negative(), value.is_nan(), value.is_infinite(), || {
        (value != 0.0).then(|| Binary::new(fraction, biased, WIDTH, 1023))
    })
}

pub(crate) fn float(value: f32) -> String {
    let fraction = u64::from(value.to_bits() & ((1 << 23) - 1));
    let biased = (value.to_bits() >> 23) as i32 & 0xff;
    text(value.is_sign_negative(), value.is_nan(), value.is_infinite(), || {
        (value != 0.0).then(|| Binary::new(fraction, biased, 24, 127))
    })
}

fn text(negative: bool, nan: bool, infinite: bool, binary: impl FnOnce() -> Option<Binary>) -> String {
    if nan {
        return "NaN".to_owned();
    }
    let sign = if negative { "-" } else { "" };
    if infinite {
        return format!("{sign}Infinity");
    }
    match binary() {
        None => format!("{sign}0.0"),
        Some(binary) => format!("{sign}{}", binary.decimal().text()),
    }
}

/// A number that is finite and not zero: `significand / 2^52 * 2^exponent`.
struct Binary {
    /// Of `WIDTH` bits, the highest of which is set.
    significand: u64,
    exponent: i32,
    /// How many bits of it the number's format could hold.
    precision: i32,
}

impl Binary {
    fn new(fraction: u64, biased: i32, width: i32, bias: i32) -> Binary {
        let (precision, biased) = match biased {
            0 => {
                let precision = 64 - fraction.leading_zeros() as i32;
                (precision, 1 - (width - precision))
            }
            biased => (width, biased),
        };
        let fraction = fraction << (WIDTH - width);
        let significand = if precision < width { fraction << (width - precision) } else { fraction | 1 << (WIDTH - 1) };
        Binary { significand, exponent: biased - bias, precision }
    }

    fn decimal(&self) -> Decimal {
        let zeros = self.significand.trailing_zeros() as i32;
        let used = WIDTH - zeros;
        let fractional = (used - self.exponent - 1).max(0);
        if fractional == 0 && self.exponent <= 62 {
            return self.integer();
        }

        // Everything as a multiple of one unit: the number is b / s in units of 10^place, m what it may be off by.
        let mut place = self.place();
        let fives = (-place).max(0);
        let s_fives = place.max(0);
        let mut b_twos = fives + fractional + self.exponent;
        let mut s_twos = s_fives + fractional;
        let mut m_twos = b_twos - self.precision;
        b_twos -= used - 1;
        let common = b_twos.min(s_twos);
        m_twos -= common + i32::from(used == 1);
        let scale = common + m_twos.min(0);
        b_twos -= scale;
        s_twos -= scale;
        m_twos = m_twos.max(0);

        let significand = self.significand >> zeros;
        let b_bits = used + b_twos + bits_of_five(fives);
        let s_bits = s_twos + 1 + bits_of_five(s_fives + 1);
        let (digits, up) = match b_bits.max(s_bits) {
            bits @ ..120 => {
                let power = |fives: i32, twos: i32| 5i128.pow(fives as u32) << twos;
                let b = i128::from(significand) * power(fives, b_twos);
                let (s, m) = (power(s_fives, s_twos), power(fives, m_twos));
                match bits {
                    ..32 => generate(b, s, m, Some(|value| i128::from(value as i32)), &mut place),
                    32..64 => generate(b, s, m, Some(|value| i128::from(value as i64)), &mut place),
                    _ => generate(b, s, m, None, &mut place),
                }
            }
            _ => {
                let power = |fives: i32, twos: i32| BigUint::from(5u8).pow(fives as u32) << twos;
                let b = BigUint::from(significand) * power(fives, b_twos);
                generate(b, power(s_fives, s_twos), power(fives, m_twos), None, &mut place)
            }
        };
        Decimal::new(digits, place + 1, up)
    }

    /// Below 2^63: its own digits, those beyond the format's precision rounded away, zeros at the end left out.
    fn integer(&self) -> Decimal {
        let mut value = match self.exponent - (WIDTH - 1) {
            left @ 0.. => self.significand << left,
            right => self.significand >> -right,
        };
        let excess = (self.exponent - self.precision - 1).max(0);
        let unit = 10u64.pow((f64::from(excess) * std::f64::consts::LOG10_2) as u32);
        value = value / unit + u64::from(unit > 1 && value % unit >= unit / 2);
        let all = (value * unit).to_string();
        let digits = all.trim_end_matches('0').bytes().map(|digit| digit - b'0').collect();
        Decimal { digits, point: all.len() as i32 }
    }

    /// The power of ten of the first digit, or one more.
    fn place(&self) -> i32 {
        let mantissa = self.significand as f64 / (1u64 << (WIDTH - 1)) as f64;
        ((mantissa - 1.5) * 0.289529654 + 0.176091259 + f64::from(self.exponent) * std::f64::consts::LOG10_2).floor()
            as i32
    }
}

/// The length of 5^n, as Java reckons it: where it decides which arithmetic is used.
fn bits_of_five(n: i32) -> i32 {
    match n {
        0 => 0,
        1..27 => 64 - 5u64.pow(n as u32).leading_zeros() as i32,
        _ => 3 * n,
    }
}

/// The digits of b / s, until m says that what remains does not matter, and whether the last of them is one too low.
///
/// What fits in an int or a long is reckoned in it, though the bound may overflow: `wrap`.
fn generate<T>(b: T, s: T, m: T, wrap: Option<fn(T) -> T>, place: &mut i32) -> (Vec<u8>, bool)
where
    T: Integer + Clone + From<u8> + TryInto<u8>,
{
    let ten = T::from(10);
    let tens = s.clone() * ten.clone();
    let step = |b: &T| {
        let (digit, rest) = b.div_rem(&s);
        (digit.try_into().unwrap_or(u8::MAX), rest * ten.clone())
    };
    let wrapped = |value: T| wrap.map_or(value.clone(), |wrap| wrap(value));
    let within = |b: &T, m: &T| {
        let sum = wrapped(b.clone() + m.clone());
        let overflown = *m <= T::zero();
        (overflown || b < m, overflown || sum > tens || (sum == tens && wrap.is_none()))
    };

    let mut digits = Vec::new();
    let (digit, mut b) = step(&b);
    let mut m = wrapped(m * ten.clone());
    let (mut low, mut high) = within(&b, &m);
    if digit == 0 && !high {
        *place -= 1;
    } else {
        digits.push(digit);
    }
    // There is a digit after the point, in the form with an exponent too.
    if *place < -3 || *place >= 8 {
        (low, high) = (false, false);
    }
    while !low && !high {
        let (digit, rest) = step(&b);
        digits.push(digit);
        b = rest;
        m = wrapped(m * ten.clone());
        (low, high) = within(&b, &m);
    }
    let twice = b.clone() + b;
    let odd = digits.last().is_some_and(|digit| digit % 2 == 1);
    (digits, high && (!low || twice > tens || (twice == tens && odd)))
}

/// `0.d1d2d3… * 10^point`.
struct Decimal {
    digits: Vec<u8>,
    point: i32,
}

impl Decimal {
    fn new(mut digits: Vec<u8>, mut point: i32, up: bool) -> Decimal {
        if up {
            let kept = digits.iter().rposition(|&digit| digit < 9);
            let nines = kept.map_or(0, |index| index + 1);
            digits[nines..].fill(0);
            match kept {
                Some(index) => digits[index] += 1,
                None => {
                    digits[0] = 1;
                    point += 1;
                }
            }
        }
        Decimal { digits, point }
    }

    fn text(&self) -> String {
        let digits: String = self.digits.iter().map(|&digit| char::from(b'0' + digit)).collect();
        let zeros = |count: i32| "0".repeat(count.max(0) as usize);
        let some = |digits: &str| if digits.is_empty() { "0".to_owned() } else { digits.to_owned() };
        match self.point {
            1..8 => {
                let padded = format!("{digits}{}", zeros(self.point - digits.len() as i32));
                let (whole, fraction) = padded.split_at(self.point as usize);
                format!("{whole}.{}", some(fraction))
            }
            -2..=0 => format!("0.{}{digits}", zeros(-self.point)),
            _ => {
                let (first, rest) = digits.split_at(1);
                format!("{first}.{}E{}", some(rest), self.point - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{double, float};

    /// The first three are of the golden records, the others what Java 17 answers.
    #[test]
    fn doubles_are_as_java_17_prints_them() {
        for (value, text) in [
            (1e300, "1.0E300"),
            (0.1, "0.1"),
            (12345678901234567890.123456789, "1.2345678901234567E19"),
            (-0.0, "-0.0"),
            (100.0, "100.0"),
            (1e7, "1.0E7"),
            (9_999_999.5, "9999999.5"),
            (0.001, "0.001"),
            (0.000_999, "9.99E-4"),
            (4_611_686_018_427_387_904.0, "4.6116860184273879E18"),
            (2e23, "1.9999999999999998E23"),
            (1e23, "9.999999999999999E22"),
            (2f64.powi(-44), "5.6843418860808015E-14"),
            (5e-324, "4.9E-324"),
            (2.2e-322, "2.2E-322"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(double(value), text);
        }
    }

    #[test]
    fn floats_are_as_java_17_prints_them() {
        for (value, text) in [
            (1.5f32, "1.5"),
            (0.1, "0.1"),
            (16_777_216.0, "1.6777216E7"),
            (2f32.powi(83), "9.6714065E24"),
            (f32::from_bits(1), "1.4E-45"),
            (f32::MAX, "3.4028235E38"),
            (f32::INFINITY, "Infinity"),
        ] {
            assert_eq!(float(value), text);
        }
    }
}
