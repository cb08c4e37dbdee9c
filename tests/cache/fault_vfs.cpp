// The shim: SQLite's tables of functions, each of which asks whether to fail and else forwards.
#include "tests/cache/fault_vfs.h"

#include <doctest/doctest.h>
#include <sqlite3.h>

#include <atomic>
#include <new>

namespace laya::cache::test {
namespace {

enum class Operation {
  kOpen,
  kRead,
  kWrite,
  kTruncate,
  kSync,
  kFileSize,
  kDelete,
  kAccess,
  kLock,
  kSharedMap,
  kSharedLock,
};

struct Plan {
  std::atomic<bool> armed{false};
  FaultKind kind = FaultKind::kIoError;
  Duration duration = Duration::kOnce;
  std::atomic<int64_t> countdown{0};
  std::atomic<int64_t> injected{0};
};

Plan plan;
sqlite3_vfs shim;
sqlite3_vfs* real = nullptr;

bool can_fail(FaultKind kind, Operation operation) {
  switch (kind) {
    case FaultKind::kIoError: return true;
    case FaultKind::kFull:
    case FaultKind::kTornWrite: return operation == Operation::kWrite;
    case FaultKind::kShortRead:
    case FaultKind::kFlippedRead: return operation == Operation::kRead;
    case FaultKind::kLockBusy:
    case FaultKind::kLockError:
    case FaultKind::kProtocol:
      return operation == Operation::kLock || operation == Operation::kSharedLock;
  }
  return false;
}

bool fails(Operation operation) {
  if (!plan.armed || !can_fail(plan.kind, operation)) return false;
  const int64_t left = --plan.countdown;
  if (left > 0 || (left < 0 && plan.duration == Duration::kOnce)) return false;
  ++plan.injected;
  return true;
}

int io_error(Operation operation) {
  switch (operation) {
    case Operation::kOpen: return SQLITE_CANTOPEN;
    case Operation::kRead: return SQLITE_IOERR_READ;
    case Operation::kWrite: return SQLITE_IOERR_WRITE;
    case Operation::kTruncate: return SQLITE_IOERR_TRUNCATE;
    case Operation::kSync: return SQLITE_IOERR_FSYNC;
    case Operation::kFileSize: return SQLITE_IOERR_FSTAT;
    case Operation::kDelete: return SQLITE_IOERR_DELETE;
    case Operation::kAccess: return SQLITE_IOERR_ACCESS;
    case Operation::kLock: return SQLITE_IOERR_LOCK;
    case Operation::kSharedMap: return SQLITE_IOERR_SHMMAP;
    case Operation::kSharedLock: return SQLITE_IOERR_SHMLOCK;
  }
  return SQLITE_IOERR;
}

/// What a failing operation returns, where it does nothing but fail.
int error_of(Operation operation) {
  switch (plan.kind) {
    case FaultKind::kFull: return SQLITE_FULL;
    case FaultKind::kLockBusy: return SQLITE_BUSY;
    case FaultKind::kProtocol: return SQLITE_PROTOCOL;
    default: return io_error(operation);
  }
}

/// An open file: SQLite allocates room for this and for the real file behind it.
struct File {
  sqlite3_file base;
  sqlite3_io_methods methods;
};

constexpr int kFileBytes = (sizeof(File) + 15) / 16 * 16;

sqlite3_file* behind(sqlite3_file* file) {
  return reinterpret_cast<sqlite3_file*>(reinterpret_cast<char*>(file) + kFileBytes);
}

const sqlite3_io_methods& methods_of(sqlite3_file* file) {
  return *behind(file)->pMethods;
}

int close_file(sqlite3_file* file) {
  return methods_of(file).xClose(behind(file));
}

int read_file(sqlite3_file* file, void* data, int bytes, sqlite3_int64 offset) {
  const bool fail = fails(Operation::kRead);
  if (fail && plan.kind == FaultKind::kIoError) return SQLITE_IOERR_READ;
  const int code = methods_of(file).xRead(behind(file), data, bytes, offset);
  if (!fail || code != SQLITE_OK) return code;
  auto* const text = static_cast<char*>(data);
  if (plan.kind == FaultKind::kFlippedRead) {
    text[plan.injected * 7919 % bytes] ^= 0x10;
    return SQLITE_OK;
  }
  for (int i = bytes / 2; i < bytes; ++i) text[i] = 0;
  return SQLITE_IOERR_SHORT_READ;
}

int write_file(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 offset) {
  if (!fails(Operation::kWrite)) {
    return methods_of(file).xWrite(behind(file), data, bytes, offset);
  }
  if (plan.kind == FaultKind::kTornWrite) {
    methods_of(file).xWrite(behind(file), data, bytes / 2, offset);
  }
  return error_of(Operation::kWrite);
}

int truncate_file(sqlite3_file* file, sqlite3_int64 bytes) {
  if (fails(Operation::kTruncate)) return error_of(Operation::kTruncate);
  return methods_of(file).xTruncate(behind(file), bytes);
}

int sync_file(sqlite3_file* file, int flags) {
  if (fails(Operation::kSync)) return error_of(Operation::kSync);
  return methods_of(file).xSync(behind(file), flags);
}

int file_size(sqlite3_file* file, sqlite3_int64* bytes) {
  if (fails(Operation::kFileSize)) return error_of(Operation::kFileSize);
  return methods_of(file).xFileSize(behind(file), bytes);
}

int lock_file(sqlite3_file* file, int level) {
  if (fails(Operation::kLock)) return error_of(Operation::kLock);
  return methods_of(file).xLock(behind(file), level);
}

int unlock_file(sqlite3_file* file, int level) {
  return methods_of(file).xUnlock(behind(file), level);
}

int check_reserved_lock(sqlite3_file* file, int* held) {
  if (fails(Operation::kLock)) return error_of(Operation::kLock);
  return methods_of(file).xCheckReservedLock(behind(file), held);
}

int control_file(sqlite3_file* file, int operation, void* argument) {
  return methods_of(file).xFileControl(behind(file), operation, argument);
}

int sector_size(sqlite3_file* file) {
  return methods_of(file).xSectorSize(behind(file));
}

int device_characteristics(sqlite3_file* file) {
  return methods_of(file).xDeviceCharacteristics(behind(file));
}

int map_shared(sqlite3_file* file, int page, int bytes, int extend, void volatile** memory) {
  if (fails(Operation::kSharedMap)) return error_of(Operation::kSharedMap);
  return methods_of(file).xShmMap(behind(file), page, bytes, extend, memory);
}

int lock_shared(sqlite3_file* file, int offset, int count, int flags) {
  const bool unlocks = (flags & SQLITE_SHM_UNLOCK) != 0;
  if (!unlocks && fails(Operation::kSharedLock)) return error_of(Operation::kSharedLock);
  return methods_of(file).xShmLock(behind(file), offset, count, flags);
}

void shared_barrier(sqlite3_file* file) {
  methods_of(file).xShmBarrier(behind(file));
}

int unmap_shared(sqlite3_file* file, int remove) {
  return methods_of(file).xShmUnmap(behind(file), remove);
}

int open_file(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* flags_out) {
  file->pMethods = nullptr;
  if (fails(Operation::kOpen)) return error_of(Operation::kOpen);
  const int code = real->xOpen(real, name, behind(file), flags, flags_out);
  if (behind(file)->pMethods == nullptr) return code;
  auto* const opened = new (file) File{};
  // Version 2: with shared memory, without memory maps, which the store does not use.
  opened->methods = {2,
                     close_file,
                     read_file,
                     write_file,
                     truncate_file,
                     sync_file,
                     file_size,
                     lock_file,
                     unlock_file,
                     check_reserved_lock,
                     control_file,
                     sector_size,
                     device_characteristics,
                     map_shared,
                     lock_shared,
                     shared_barrier,
                     unmap_shared,
                     nullptr,
                     nullptr};
  opened->base.pMethods = &opened->methods;
  return code;
}

int delete_file(sqlite3_vfs*, const char* name, int sync_directory) {
  if (fails(Operation::kDelete)) return error_of(Operation::kDelete);
  return real->xDelete(real, name, sync_directory);
}

int access_file(sqlite3_vfs*, const char* name, int flags, int* result) {
  if (fails(Operation::kAccess)) return error_of(Operation::kAccess);
  return real->xAccess(real, name, flags, result);
}

int sleep_not(sqlite3_vfs*, int microseconds) {
  return microseconds;
}

}  // namespace

const char* to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::kIoError: return "I/O error";
    case FaultKind::kFull: return "disk full";
    case FaultKind::kTornWrite: return "torn write";
    case FaultKind::kShortRead: return "short read";
    case FaultKind::kFlippedRead: return "bit flipped while reading";
    case FaultKind::kLockBusy: return "lock held by others";
    case FaultKind::kLockError: return "lock refused";
    case FaultKind::kProtocol: return "locking protocol";
  }
  return "unknown";
}

FaultVfs::FaultVfs() {
  REQUIRE(real == nullptr);
  real = sqlite3_vfs_find(nullptr);
  REQUIRE(real != nullptr);
  shim = *real;
  shim.szOsFile = kFileBytes + real->szOsFile;
  shim.pNext = nullptr;
  shim.zName = "laya-fault";
  shim.xOpen = open_file;
  shim.xDelete = delete_file;
  shim.xAccess = access_file;
  shim.xSleep = sleep_not;
  REQUIRE(sqlite3_vfs_register(&shim, 1) == SQLITE_OK);
}

FaultVfs::~FaultVfs() {
  disarm();
  sqlite3_vfs_unregister(&shim);
  sqlite3_vfs_register(real, 1);
  real = nullptr;
}

void FaultVfs::arm(FaultKind kind, int64_t nth, Duration duration) {
  plan.armed = false;
  plan.kind = kind;
  plan.duration = duration;
  plan.countdown = nth;
  plan.injected = 0;
  plan.armed = true;
}

void FaultVfs::disarm() {
  plan.armed = false;
}

int64_t FaultVfs::injected() const {
  return plan.injected;
}

}  // namespace laya::cache::test
