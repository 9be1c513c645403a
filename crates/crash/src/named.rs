//! Enums whose values have names: each name is declared once, beside its value.

/// Defines such an enum, with a list of its values, and its names as text.
macro_rules! named {
    (
        $(#[$meta:meta])*
        $enum:ident {
            $($(#[$of_value:meta])* $value:ident = $name:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $enum {
            $($(#[$of_value])* $value,)*
        }

        impl $enum {
            /// All of them.
            pub const ALL: [$enum; [$($name),*].len()] = [$($enum::$value),*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($enum::$value => $name,)*
                }
            }

            /// The one with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<$enum> {
                $enum::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use named;
