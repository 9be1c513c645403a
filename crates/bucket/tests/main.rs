//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use weir_bucket::{Bucket, Place, PlaceError};
use weir_replica::{Creation, OBJECT_BYTES_MAX, ObjectStore as _, StoreError};
use weir_runtime::{Runtime, Wall};

#[test]
fn a_url_names_a_bucket_or_a_directory() {
    let place =
        |bucket: &str, prefix: &str| Place::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() };
    assert_eq!("s3://a/b/c/".parse(), Ok(place("a", "b/c")));
    assert_eq!("s3://a".parse(), Ok(place("a", "")));
    assert_eq!("file:///a/b".parse(), Ok(Place::Directory("/a/b".into())));
    for wrong in
        ["", "a", "s3://", "s3:///a", "file://a", "https://a/b", "s3://key:secret@bucket/a", "gs://a"]
    {
        assert!(matches!(wrong.parse::<Place>(), Err(PlaceError::Unknown(_))), "{wrong}");
    }
}

#[test]
fn credentials_in_a_url_are_in_no_message() {
    for (wrong, shown) in [
        ("s3://key:secret@bucket/a", "s3://..."),
        ("s3://key:secret", "s3://..."),
        ("key:secret@bucket", "..."),
        ("key:sec://ret@bucket", "..."),
        ("gs://a", "gs://a"),
    ] {
        let told = wrong.parse::<Place>().unwrap_err().to_string();
        assert!(told.starts_with(&format!("{shown}: ")), "{told}");
    }
}

#[test]
fn a_directory_creates_an_object_once_and_lists_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::wall(Wall::default()).unwrap();
    let handle = runtime.handle();
    let place = Place::Directory(directory.path().to_owned());
    let done = runtime.block_on(async {
        let bucket = Bucket::open(&handle, &place, false).unwrap();
        assert_eq!(bucket.get("log/1").await, Err(StoreError::Missing("log/1".to_owned())));
        assert_eq!(bucket.create("log/2", Bytes::from_static(b"two")).await, Ok(Creation::Created));
        assert_eq!(bucket.create("log/1", Bytes::from_static(b"one")).await, Ok(Creation::Created));
        assert_eq!(bucket.create("log/1", Bytes::from_static(b"other")).await, Ok(Creation::Exists));
        assert_eq!(bucket.create("map/1", Bytes::from_static(b"map")).await, Ok(Creation::Created));
        assert_eq!(bucket.get("log/1").await.unwrap(), &b"one"[..]);
        assert_eq!(bucket.get_range("log/1", 1..3).await.unwrap(), &b"ne"[..]);
        for beyond in [1..4, 3..4, 9..10] {
            assert!(matches!(bucket.get_range("log/1", beyond).await, Err(StoreError::Refused(_))));
        }
        assert_eq!(bucket.get_range("log/9", 0..1).await, Err(StoreError::Missing("log/9".to_owned())));
        assert_eq!(bucket.list("log/", "").await.unwrap(), ["log/1", "log/2"]);
        assert_eq!(bucket.list("log/", "log/1").await.unwrap(), ["log/2"]);
        assert_eq!(bucket.list("epoch/", "").await.unwrap(), Vec::<String>::new());
        bucket.delete("log/1").await.unwrap();
        bucket.delete("log/1").await.unwrap();
        assert_eq!(bucket.list("log/", "").await.unwrap(), ["log/2"]);
        let unfenced = Bucket::open(&handle, &place, true).unwrap();
        assert_eq!(unfenced.create("log/2", Bytes::from_static(b"new")).await, Ok(Creation::Created));
        assert_eq!(bucket.get("log/2").await.unwrap(), &b"new"[..]);
    });
    done.unwrap();
}

/// A foreign object under a key of a replica takes no memory, however large it is.
#[test]
fn an_object_that_is_larger_than_any_of_a_replica_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::wall(Wall::default()).unwrap();
    let place = Place::Directory(directory.path().to_owned());
    std::fs::create_dir(directory.path().join("log")).unwrap();
    let large = |key: &str, bytes| {
        std::fs::File::create(directory.path().join(key)).unwrap().set_len(bytes).unwrap();
    };
    large("log/1", OBJECT_BYTES_MAX);
    large("log/2", 1 << 40);
    let done = runtime.block_on(async {
        let bucket = Bucket::open(&runtime.handle(), &place, false).unwrap();
        assert_eq!(bucket.get("log/1").await.map(|bytes| bytes.len() as u64), Ok(OBJECT_BYTES_MAX));
        let oversized = StoreError::Oversized { key: "log/2".to_owned(), bytes: 1 << 40 };
        assert_eq!(bucket.get("log/2").await, Err(oversized));
    });
    done.unwrap();
}

fn is_silent<T: std::fmt::Debug>(answer: Result<T, StoreError>, why: &str) {
    match answer {
        Err(StoreError::Unreachable(text)) if text.contains(why) => {}
        answer => panic!("{answer:?} is not {why}"),
    }
}

/// As where the store's disk is unmounted: the directory is missing, or another one, and is the same again later.
#[test]
fn a_directory_that_is_gone_or_another_one_does_not_answer_and_takes_nothing() {
    let above = tempfile::tempdir().unwrap();
    let (path, away) = (above.path().join("store"), above.path().join("away"));
    std::fs::create_dir(&path).unwrap();
    let runtime = Runtime::wall(Wall::default()).unwrap();
    let handle = runtime.handle();
    let done = runtime.block_on(async {
        let bucket = Bucket::open(&handle, &Place::Directory(path.clone()), false).unwrap();
        let create = async |key: &str| bucket.create(key, Bytes::from_static(b"one")).await;
        assert_eq!(create("log/1").await, Ok(Creation::Created));
        std::fs::rename(&path, &away).unwrap();
        for is_missing in [true, false] {
            let why = if is_missing { "No such file" } else { "another directory than at the start" };
            if !is_missing {
                std::fs::create_dir(&path).unwrap();
            }
            is_silent(create("log/2").await, why);
            is_silent(bucket.get("log/1").await, why);
            is_silent(bucket.get_range("log/1", 0..1).await, why);
            is_silent(bucket.list("log/", "").await, why);
            is_silent(bucket.delete("log/1").await, why);
        }
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0, "nothing was made in the other directory");
        std::fs::remove_dir(&path).unwrap();
        std::fs::rename(&away, &path).unwrap();
        assert_eq!(create("log/2").await, Ok(Creation::Created));
        assert_eq!(bucket.list("log/", "").await.unwrap(), ["log/1", "log/2"]);
    });
    done.unwrap();
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let runtime = Runtime::wall(Wall::default()).unwrap();
    let place: Place = "file:///no/such/directory".parse().unwrap();
    let error = Bucket::open(&runtime.handle(), &place, false).err().unwrap();
    assert!(error.to_string().contains("/no/such/directory"), "{error}");
}
