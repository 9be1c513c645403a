//! What SQLite calls of an open file. Most only calls the same of the real file.

use std::ffi::{c_int, c_void};
use std::ptr::null;

use crate::abi::{
    BATCH_ATOMIC, FCNTL_BEGIN_ATOMIC_WRITE, FCNTL_COMMIT_ATOMIC_WRITE, FCNTL_COMMIT_PHASETWO,
    FCNTL_HAS_MOVED, FCNTL_PRAGMA, FCNTL_ROLLBACK_ATOMIC_WRITE, FCNTL_SYNC, File, IO_ERROR,
    IO_ERROR_SHORT_READ, IoMethods, LOCK_RESERVED, OK, SYNC_NORMAL,
};
use crate::file::{Database, OrderedFile, Role};
use crate::mounted_database::Descriptor;

/// The methods of a file, before those of the real one: it has what that has.
///
/// # Safety
/// `methods` are those of an open file.
pub(crate) unsafe fn wrapped(methods: *const IoMethods) -> IoMethods {
    // SAFETY: the first version has these, and `since` reads the others only where there are any.
    unsafe {
        let version = (*methods).version.clamp(1, 3);
        macro_rules! since {
            ($first:literal, $name:ident) => {
                (version >= $first && (*methods).$name.is_some()).then_some($name as _)
            };
        }
        IoMethods {
            version,
            close: since!(1, close),
            read: since!(1, read),
            write: since!(1, write),
            truncate: since!(1, truncate),
            sync: since!(1, sync),
            file_size: since!(1, file_size),
            lock: since!(1, lock),
            unlock: since!(1, unlock),
            check_reserved_lock: since!(1, check_reserved_lock),
            file_control: since!(1, file_control),
            sector_size: since!(1, sector_size),
            device_characteristics: since!(1, device_characteristics),
            shm_map: since!(2, shm_map),
            shm_lock: since!(2, shm_lock),
            shm_barrier: since!(2, shm_barrier),
            shm_unmap: since!(2, shm_unmap),
            fetch: since!(3, fetch),
            unfetch: since!(3, unfetch),
        }
    }
}

/// Calls a method of a real file. One that it does not have is not in the table of ours either.
macro_rules! call {
    ($real:expr, $name:ident($($argument:expr),*)) => {{
        let real: *mut File = $real;
        // SAFETY: SQLite calls with an open file, whose real one is open too, and with what its method takes.
        unsafe {
            match (*(*real).methods).$name {
                Some(method) => method(real $(, $argument)*),
                None => IO_ERROR,
            }
        }
    }};
}

/// The same by the file that SQLite calls with, of which no other code has a reference meanwhile.
macro_rules! call_real {
    ($file:ident, $name:ident($($argument:expr),*)) => {{
        // SAFETY: SQLite calls with an open file.
        let real = unsafe { (*$file.cast::<OrderedFile>()).real.file };
        call!(real, $name($($argument),*))
    }};
}

/// The file that SQLite calls with.
///
/// # Safety
/// It is open, and no other code uses it before the method returns.
unsafe fn ours<'a>(file: *mut File) -> &'a mut OrderedFile {
    // SAFETY: as the caller promises.
    unsafe { &mut *file.cast::<OrderedFile>() }
}

fn code(done: Result<(), c_int>) -> c_int {
    done.err().unwrap_or(OK)
}

unsafe extern "C" fn close(file: *mut File) -> c_int {
    // SAFETY: SQLite calls with an open file, and does not use it again.
    unsafe {
        let ours = file.cast::<OrderedFile>().read();
        (*file).methods = null();
        if let Role::Database(_) = ours.role {
            ours.weir.kept.close_of(file.addr());
        }
        ours.leave()
    }
}

unsafe extern "C" fn write(file: *mut File, bytes: *const c_void, length: c_int, offset: i64) -> c_int {
    let length = usize::try_from(length).unwrap_or(0);
    // SAFETY: SQLite calls with an open file, and with that many bytes.
    unsafe { code(ours(file).write(offset, std::slice::from_raw_parts(bytes.cast(), length))) }
}

unsafe extern "C" fn truncate(file: *mut File, size: i64) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let ours = unsafe { ours(file) };
    if let Err(error) = ours.put_down() {
        return error;
    }
    if let Role::Journal(journal) = &mut ours.role {
        journal.ended = size == 0;
    }
    code(ours.order_journal().and_then(|()| ours.real.truncate(size)))
}

unsafe extern "C" fn sync(file: *mut File, flags: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let ours = unsafe { ours(file) };
    if let Err(error) = ours.put_down() {
        return error;
    }
    let real = ours.real.file;
    ours.synchronise(|| call!(real, sync(flags)))
}

/// The kernel knows the size of a file; what SQLite's own VFS asks for besides, it would have to ask the mount for.
unsafe extern "C" fn file_size(file: *mut File, size: *mut i64) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let ours = unsafe { ours(file) };
    if let Err(error) = ours.put_down() {
        return error;
    }
    // Others may change what is not on a mount of Weir.
    let known = ours.real.fd.filter(|_| ours.database().place.is_some());
    let Some(found) = known.and_then(Descriptor::from_fd) else { return call_real!(file, file_size(size)) };
    // As SQLite's own has it: some of its versions write one byte into what is empty.
    // SAFETY: SQLite calls with a place for the answer.
    unsafe { *size = if found.size == 1 { 0 } else { found.size } };
    OK
}

unsafe extern "C" fn file_control(file: *mut File, operation: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let ours = unsafe { ours(file) };
    if let Err(error) = ours.put_down() {
        return error;
    }
    match (operation, &mut ours.role) {
        (FCNTL_BEGIN_ATOMIC_WRITE, Role::Database(Database { atomic: true, .. })) => {
            return code(ours.begin_batch());
        }
        (FCNTL_COMMIT_ATOMIC_WRITE, Role::Database(Database { atomic: true, .. })) => {
            return code(ours.commit_batch());
        }
        (FCNTL_ROLLBACK_ATOMIC_WRITE, Role::Database(Database { atomic: true, .. })) => {
            ours.roll_back_batch();
            return OK;
        }
        (FCNTL_SYNC, Role::Database(database)) => database.with_super_journal = !argument.is_null(),
        (FCNTL_COMMIT_PHASETWO, _) => {
            let real = ours.real.file;
            let finished = ours.finish(|| call!(real, sync(SYNC_NORMAL)));
            if finished != OK {
                return finished;
            }
        }
        (FCNTL_HAS_MOVED, Role::Database(database)) => {
            if let Some(moved) = database.has_moved() {
                // SAFETY: this is what the argument of this operation is.
                unsafe { *argument.cast::<c_int>() = moved.into() };
                return OK;
            }
        }
        (FCNTL_PRAGMA, Role::Database(_)) => {
            // SAFETY: this is what the argument of this operation is.
            if let Some(done) = unsafe { ours.pragma(argument.cast()) } {
                return done;
            }
        }
        _ => {}
    }
    call_real!(file, file_control(operation, argument))
}

/// Methods after which others may look at the file.
macro_rules! put_down_and_delegate {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        unsafe extern "C" fn $name(file: *mut File $(, $argument: $type)*) -> c_int {
            // SAFETY: SQLite calls with an open file.
            let down = unsafe { ours(file) }.put_down_at_lock();
            // It is released in any case.
            let done = call_real!(file, $name($($argument),*));
            down.err().unwrap_or(done)
        }
    )*};
}

unsafe extern "C" fn lock(file: *mut File, level: c_int) -> c_int {
    let done = call_real!(file, lock(level));
    // SAFETY: SQLite calls with an open file.
    unsafe { ours(file) }.is_writing |= done == OK && level >= LOCK_RESERVED;
    done
}

/// An update that SQLite has not completed goes with the lock.
unsafe extern "C" fn unlock(file: *mut File, level: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let ours = unsafe { ours(file) };
    ours.roll_back_batch();
    ours.is_writing = false;
    let down = ours.put_down_at_lock();
    // It is released in any case.
    let done = call_real!(file, unlock(level));
    down.err().unwrap_or(done)
}

/// What the real file can do, and batches if the file is atomic.
unsafe extern "C" fn device_characteristics(file: *mut File) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let can = if unsafe { ours(file) }.is_atomic() { BATCH_ATOMIC } else { 0 };
    can | call_real!(file, device_characteristics())
}

/// Methods that do nothing but call the real file's.
macro_rules! delegate {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        unsafe extern "C" fn $name(file: *mut File $(, $argument: $type)*) -> c_int {
            call_real!(file, $name($($argument),*))
        }
    )*};
}

put_down_and_delegate! {
    shm_lock(offset: c_int, count: c_int, flags: c_int);
    shm_unmap(delete: c_int);
}

/// A transaction that is undone reads its journal, also what could not be put down. Every transaction looks behind the
/// end of its journal for another one's header; for that the kernel would ask the mount whether it is still the end.
unsafe extern "C" fn read(file: *mut File, into: *mut c_void, length: c_int, offset: i64) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let ours = unsafe { ours(file) };
    let bytes = usize::try_from(length).unwrap_or(0);
    // SAFETY: SQLite calls with room for that many bytes, which no other code looks at.
    let room = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), bytes) };
    match ours.read_held(offset, room) {
        Ok(true) => OK,
        Ok(false) if ours.ends_before(offset) => {
            room.fill(0);
            IO_ERROR_SHORT_READ
        }
        Ok(false) => call_real!(file, read(into, length, offset)),
        Err(error) => error,
    }
}

delegate! {
    check_reserved_lock(answer: *mut c_int);
    sector_size();
    shm_map(region: c_int, bytes: c_int, extend: c_int, at: *mut *mut c_void);
    fetch(offset: i64, length: c_int, at: *mut *mut c_void);
    unfetch(offset: i64, at: *mut c_void);
}

unsafe extern "C" fn shm_barrier(file: *mut File) {
    // SAFETY: SQLite calls with an open file, whose real one has this method.
    unsafe {
        let real = (*file.cast::<OrderedFile>()).real.file;
        if let Some(method) = (*(*real).methods).shm_barrier {
            method(real);
        }
    }
}
