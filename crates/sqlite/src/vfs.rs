//! The VFS `weir`: the one that was the default before, but for databases and their journals.

use std::ffi::{CStr, c_char, c_double, c_int, c_void};
use std::ptr::null_mut;

use crate::abi::{ACCESS_EXISTS, File, IO_ERROR, OK, Routines, Symbol, Vfs};
use crate::file::{self, OrderedFile};
use crate::kept::KeptJournals;
use crate::leaving::LeavingJournals;

pub(crate) const NAME: &CStr = c"weir";

/// The VFS, with what stands behind it. SQLite sees the first member.
#[repr(C)]
pub(crate) struct Weir {
    vfs: Vfs,
    pub(crate) real: *mut Vfs,
    pub(crate) routines: &'static Routines,
    pub(crate) kept: KeptJournals,
    pub(crate) leaving: LeavingJournals,
}

/// Calls a function of the real VFS. One that it does not have is not in the table of ours either; so no caller gets to
/// see what is said for that case.
macro_rules! call_real {
    ($real:expr, $name:ident($($argument:expr),*), $missing:expr) => {{
        let real = $real;
        match (*real).$name {
            Some(function) => function(real $(, $argument)*),
            None => $missing,
        }
    }};
}

impl Weir {
    /// A VFS in front of another one, to be registered. It is never freed, as SQLite uses it for as long as
    /// the process lives.
    pub(crate) fn before(real: *mut Vfs, routines: &'static Routines) -> *mut Vfs {
        // SAFETY: `real` is registered, and no code changes a registered VFS.
        let vfs = unsafe { wrapped(real) };
        let weir: &'static mut Weir = Box::leak(Box::new(Weir {
            vfs,
            real,
            routines,
            kept: KeptJournals::default(),
            leaving: LeavingJournals::default(),
        }));
        (&raw mut *weir).cast()
    }

    /// # Safety
    /// `vfs` comes from `before`.
    unsafe fn from_vfs(vfs: *const Vfs) -> &'static Weir {
        // SAFETY: it is the first member of one that is never freed, and only SQLite's link in its list changes.
        unsafe { &*vfs.cast() }
    }
}

/// The table of the VFS that stands before `real`: it has what that has.
///
/// # Safety
/// `real` is registered.
unsafe fn wrapped(real: *const Vfs) -> Vfs {
    // SAFETY: the first version has these, and `since` reads the others only where there are any.
    unsafe {
        let version = (*real).version.clamp(1, 3);
        macro_rules! since {
            ($first:literal, $name:ident) => {
                (version >= $first && (*real).$name.is_some()).then_some($name as _)
            };
        }
        Vfs {
            version,
            file_bytes: (*real).file_bytes + size_of::<OrderedFile>() as c_int,
            path_max: (*real).path_max,
            next: null_mut(),
            name: NAME.as_ptr(),
            data: null_mut(),
            open: Some(open),
            delete: since!(1, delete),
            access: since!(1, access),
            full_pathname: since!(1, full_pathname),
            dl_open: since!(1, dl_open),
            dl_error: since!(1, dl_error),
            dl_sym: since!(1, dl_sym),
            dl_close: since!(1, dl_close),
            randomness: since!(1, randomness),
            sleep: since!(1, sleep),
            current_time: since!(1, current_time),
            get_last_error: since!(1, get_last_error),
            current_time_int64: since!(2, current_time_int64),
            set_system_call: since!(3, set_system_call),
            get_system_call: since!(3, get_system_call),
            next_system_call: since!(3, next_system_call),
        }
    }
}

/// Opens a file: a database and its journals as an [`OrderedFile`], others as the real VFS has them.
unsafe extern "C" fn open(
    vfs: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls with a VFS that was registered, and with room for its files.
    let weir = unsafe { Weir::from_vfs(vfs) };
    // SAFETY: as above; `name` is the one that SQLite has for a file of this kind.
    if let Some(role) = unsafe { file::role(weir, name, flags) } {
        // SAFETY: as above; the role says that there is a name.
        return unsafe { OrderedFile::open(weir, role, name, file, flags, flags_out) };
    }
    // SAFETY: there is more room than the real VFS needs.
    unsafe { weir.open_real(name, file, flags, flags_out) }
}

impl Weir {
    /// Bytes of an open file of the real VFS.
    pub(crate) fn real_bytes(&self) -> usize {
        // SAFETY: the real VFS is registered.
        usize::try_from(unsafe { (*self.real).file_bytes }).unwrap_or(0)
    }

    /// Opens a file of the real VFS.
    ///
    /// # Safety
    /// As of `xOpen`; `file` has room for a file of the real VFS.
    pub(crate) unsafe fn open_real(
        &self,
        name: *const c_char,
        file: *mut File,
        flags: c_int,
        flags_out: *mut c_int,
    ) -> c_int {
        // SAFETY: the real VFS is registered, and the rest is as the caller promises.
        unsafe { call_real!(self.real, open(name, file, flags, flags_out), IO_ERROR) }
    }
}

/// Whether a file is there. SQLite asks that of a journal to see whether it is to be rolled back, and then looks into
/// it: of one that is kept, and has nothing in it, that is said at once.
unsafe extern "C" fn access(vfs: *mut Vfs, name: *const c_char, flags: c_int, answer: *mut c_int) -> c_int {
    // SAFETY: SQLite calls with a VFS that was registered, with a name, and with a place for the answer.
    unsafe {
        let weir = Weir::from_vfs(vfs);
        if flags == ACCESS_EXISTS && !name.is_null() && weir.kept.is_cold(CStr::from_ptr(name)) {
            *answer = 0;
            return OK;
        }
        call_real!(weir.real, access(name, flags, answer), IO_ERROR)
    }
}

/// Deletes a file, which is not kept then. The directory of a journal is synchronised here, or when the transaction is
/// made durable right after.
unsafe extern "C" fn delete(vfs: *mut Vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    // SAFETY: SQLite calls with a VFS that was registered, and with a name.
    unsafe {
        let weir = Weir::from_vfs(vfs);
        let path = CStr::from_ptr(name);
        weir.kept.close(path);
        let sync_directory = if weir.leaving.take(path) { 0 } else { sync_directory };
        call_real!(weir.real, delete(name, sync_directory), IO_ERROR)
    }
}

/// Functions that do nothing but call the real VFS's.
macro_rules! delegate {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?, missing $missing:expr;)*) => {$(
        unsafe extern "C" fn $name(vfs: *mut Vfs $(, $argument: $type)*) $(-> $result)? {
            // SAFETY: SQLite calls with a VFS that was registered, and with what the real one takes.
            unsafe { call_real!(Weir::from_vfs(vfs).real, $name($($argument),*), $missing) }
        }
    )*};
}

delegate! {
    full_pathname(name: *const c_char, room: c_int, path: *mut c_char) -> c_int, missing IO_ERROR;
    dl_open(name: *const c_char) -> *mut c_void, missing null_mut();
    dl_error(room: c_int, message: *mut c_char), missing ();
    dl_sym(library: *mut c_void, name: *const c_char) -> Symbol, missing None;
    dl_close(library: *mut c_void), missing ();
    randomness(bytes: c_int, into: *mut c_char) -> c_int, missing 0;
    sleep(microseconds: c_int) -> c_int, missing 0;
    current_time(days: *mut c_double) -> c_int, missing IO_ERROR;
    get_last_error(room: c_int, message: *mut c_char) -> c_int, missing 0;
    current_time_int64(milliseconds: *mut i64) -> c_int, missing IO_ERROR;
    set_system_call(name: *const c_char, call: Symbol) -> c_int, missing IO_ERROR;
    get_system_call(name: *const c_char) -> Symbol, missing None;
    next_system_call(name: *const c_char) -> *const c_char, missing null_mut();
}
