//! *Applications* of a phone, as the figures of the eMMC paper run them: by name, on a filesystem. What each of them
//! does is in its [`Behaviour`](crate::Behaviour).

use std::fmt;

use serde::Deserialize;

use crate::calls::On;

/// An application that a user works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// On which filesystem.
    pub on: On,
    /// Which application.
    pub app: App,
}

/// The applications of the eMMC paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum App {
    /// A feed of messages and pictures.
    Facebook,
    /// A feed of short messages.
    Twitter,
    /// Maps, in tiles.
    GoogleMap,
    /// Mail.
    Gmail,
    /// Films, from the network.
    Netflix,
    /// A game.
    AngryBirds,
    /// A browser.
    Chrome,
    /// A shop.
    Amazon,
}

/// The behaviour's file of this name, embedded.
macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!("../figures/apps/", $name, ".toml")))
    };
}

impl App {
    /// All of them.
    pub const ALL: [App; 8] = [
        App::Facebook,
        App::Twitter,
        App::GoogleMap,
        App::Gmail,
        App::Netflix,
        App::AngryBirds,
        App::Chrome,
        App::Amazon,
    ];

    /// Its name, and its behaviour's file, embedded so that the program needs no checkout.
    fn file(self) -> (&'static str, &'static str) {
        match self {
            App::Facebook => file!("facebook"),
            App::Twitter => file!("twitter"),
            App::GoogleMap => file!("google-map"),
            App::Gmail => file!("gmail"),
            App::Netflix => file!("netflix"),
            App::AngryBirds => file!("angry-birds"),
            App::Chrome => file!("chrome"),
            App::Amazon => file!("amazon"),
        }
    }

    /// Its name in files and rows.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.file().0
    }

    pub(crate) fn text(self) -> &'static str {
        self.file().1
    }
}

impl fmt::Display for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.on, self.app)
    }
}
