//! Lines of the script, and answers.

use std::fmt;

use tamis::Slice;

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Bytes(Vec<u8>),
    Word(String),
}

impl Token {
    pub(crate) fn word(&self) -> &str {
        match self {
            Token::Word(word) => word,
            Token::Bytes(_) => panic!("a word is expected"),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Token::Bytes(bytes) => bytes,
            Token::Word(word) => panic!("bytes are expected, not {word}"),
        }
    }

    /// Bytes, or nothing for `none` and `-`.
    pub(crate) fn optional(&self) -> Option<&[u8]> {
        match self {
            Token::Word(word) if word == "none" || word == "-" => None,
            token => Some(token.bytes()),
        }
    }

    pub(crate) fn number(&self) -> i64 {
        self.word().parse().expect("a number")
    }
}

/// What a command answers, or should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Any,
    Error(String),
    Value(Option<Vec<u8>>),
    Word(String),
    List(Vec<Option<Vec<u8>>>),
}

impl Answer {
    pub(crate) fn value(value: Option<Slice>) -> Answer {
        Answer::Value(value.map(|value| value.to_vec()))
    }

    /// Reports whether `answer` is what this one asks for.
    pub(crate) fn is_met(&self, answer: &Answer) -> bool {
        match self {
            Answer::Done | Answer::Any => !matches!(answer, Answer::Error(_)),
            expected => expected == answer,
        }
    }

    fn parse(tokens: &[Token]) -> Answer {
        match tokens {
            [] => Answer::Done,
            [Token::Bytes(bytes)] => Answer::Value(Some(bytes.clone())),
            [Token::Word(word), rest @ ..] => match (word.as_str(), rest) {
                ("any", []) => Answer::Any,
                ("none", []) => Answer::Value(None),
                ("error", [code]) => Answer::Error(code.word().to_owned()),
                ("list", items) => {
                    Answer::List(items.iter().map(|item| item.optional().map(<[u8]>::to_vec)).collect())
                }
                (_, []) => Answer::Word(word.clone()),
                // Nothing answers that.
                _ => Answer::Word(format!("{tokens:?}")),
            },
            _ => Answer::Word(format!("{tokens:?}")),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let excerpt = |value: &Option<Vec<u8>>| match value {
            None => "none".to_owned(),
            Some(bytes) => {
                format!("\"{}\" ({} bytes)", bytes[..bytes.len().min(60)].escape_ascii(), bytes.len())
            }
        };
        match self {
            Answer::Value(value) => f.write_str(&excerpt(value)),
            Answer::List(items) => {
                write!(f, "list {}", items.iter().map(excerpt).collect::<Vec<_>>().join(" "))
            }
            other => write!(f, "{other:?}"),
        }
    }
}

pub(crate) enum Line {
    Blank,
    Test(String),
    Command { command: String, arguments: Vec<Token>, expected: Answer },
}

pub(crate) fn parse(line: &str) -> Line {
    if line.starts_with('#') {
        return Line::Blank;
    }
    let tokens = tokens(line);
    let Some((command, rest)) = tokens.split_first() else { return Line::Blank };
    if command.word() == "test" {
        return Line::Test(rest[0].word().to_owned());
    }
    let arrow = rest.iter().position(|token| *token == Token::Word("=>".into()));
    let (arguments, expected) = match arrow {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, &[][..]),
    };
    assert!(arrow.is_none() || !expected.is_empty(), "an answer after the arrow");
    Line::Command {
        command: command.word().to_owned(),
        arguments: arguments.to_vec(),
        expected: Answer::parse(expected),
    }
}

fn tokens(line: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (text, after) = quoted.split_once('"').expect("a closing quote");
            let (bytes, after) = (unescaped(text), after);
            let end = after.find(' ').unwrap_or(after.len());
            let times = match &after[..end] {
                "" => 1,
                repeated => repeated.strip_prefix('*').expect("a star").parse().expect("a number"),
            };
            tokens.push(Token::Bytes(bytes.repeat(times)));
            rest = after[end..].trim_start();
        } else {
            let end = rest.find(' ').unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = rest[end..].trim_start();
        }
    }
    tokens
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, text) = part.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits"));
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}
