// Which file systems get which journal, over all types that the cache is known to meet.
#include "cache/file_system.h"

#include "tests/cache/support.h"

namespace laya::cache {
namespace {

TEST_CASE("file systems of one machine get the write-ahead log") {
  // ext4, XFS, Btrfs, tmpfs, ramfs, overlayfs, F2FS, ZFS, bcachefs
  for (const int64_t type : {0xef53L, 0x58465342L, 0x9123683eL, 0x01021994L, 0x858458f6L,
                             0x794c7630L, 0xf2f52010L, 0x2fc12fc1L, 0xca451a4eL}) {
    CAPTURE(type);
    CHECK(journal_mode_for(type) == JournalMode::kWal);
  }
}

TEST_CASE("file systems between machines get the rollback journal") {
  // NFS, SMB, CIFS, SMB2, Lustre, GPFS, FUSE, Ceph, OpenAFS, kAFS, 9p, OCFS2, GFS2, BeeGFS, Coda,
  // NCP, OrangeFS, PanFS, VMware and VirtualBox shared folders
  for (const int64_t type :
       {0x6969L,     0x517bL,     0xff534d42L, 0xfe534d42L, 0x0bd00bd0L, 0x47504653L, 0x65735546L,
        0x00c36400L, 0x5346414fL, 0x6b414653L, 0x01021997L, 0x7461636fL, 0x01161970L, 0x19830326L,
        0x73757245L, 0x564cL,     0x20030528L, 0xaad7aaeaL, 0xbacbacbcL, 0x786f4256L}) {
    CAPTURE(type);
    CHECK(journal_mode_for(type) == JournalMode::kRollback);
  }
}

TEST_CASE("an unknown file system gets the rollback journal") {
  for (const int64_t type : {0L, 1L, -1L, 0x12345678L}) {
    CHECK(journal_mode_for(type) == JournalMode::kRollback);
  }
  CHECK(journal_mode_of("/nonexistent/path") == JournalMode::kRollback);
}

TEST_CASE("a type that a 32-bit system hands out as a negative number is the same type") {
  CHECK(journal_mode_for(static_cast<int32_t>(0x9123683e)) == JournalMode::kWal);
  CHECK(journal_mode_for(static_cast<int32_t>(0xff534d42)) == JournalMode::kRollback);
}

TEST_CASE("the journal in the database is the one that its file system gets") {
  const test::TempDirectory temp;
  REQUIRE(Store::open(test::options_for(temp))->mode() == StoreMode::kReadWrite);
  const bool wal = journal_mode_of(temp.path()) == JournalMode::kWal;
  CHECK(test::RawDatabase(temp.database()).text("PRAGMA journal_mode") == (wal ? "wal" : "delete"));
}

}  // namespace
}  // namespace laya::cache
