// Which file systems get which journal, over all types that the cache is known to meet.
#include "cache/file_system.h"

#include <linux/magic.h>

#include "tests/cache/fault_table.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

struct FileSystem {
  const char* name;
  int64_t type;
};

// All file systems of linux/magic.h, of statfs(2) and of the cluster and network file systems that
// have numbers of their own.
constexpr FileSystem kOfOneMachine[] = {
    {"ext2, ext3, ext4", EXT4_SUPER_MAGIC},
    {"XFS", XFS_SUPER_MAGIC},
    {"Btrfs", BTRFS_SUPER_MAGIC},
    {"tmpfs", TMPFS_MAGIC},
    {"ramfs", RAMFS_MAGIC},
    {"overlayfs", OVERLAYFS_SUPER_MAGIC},
    {"F2FS", F2FS_SUPER_MAGIC},
    {"ZFS", 0x2fc12fc1},
    {"bcachefs", 0xca451a4e},
    {"JFS", 0x3153464a},
    {"ReiserFS", REISERFS_SUPER_MAGIC},
    {"NILFS2", NILFS_SUPER_MAGIC},
    {"UBIFS", 0x24051905},
    {"FAT", MSDOS_SUPER_MAGIC},
    {"exFAT", EXFAT_SUPER_MAGIC},
    {"ntfs3", 0x7366746e},
    {"HFS+", 0x482b},
    {"squashfs", SQUASHFS_MAGIC},
    {"EROFS", EROFS_SUPER_MAGIC_V1},
    {"ISO 9660", ISOFS_SUPER_MAGIC},
};

constexpr FileSystem kBetweenMachines[] = {
    {"NFS", NFS_SUPER_MAGIC},
    {"SMB", SMB_SUPER_MAGIC},
    {"CIFS", CIFS_SUPER_MAGIC},
    {"SMB2", SMB2_SUPER_MAGIC},
    {"Lustre", 0x0bd00bd0},
    {"GPFS", 0x47504653},
    {"FUSE", FUSE_SUPER_MAGIC},
    {"Ceph", CEPH_SUPER_MAGIC},
    {"OpenAFS", AFS_SUPER_MAGIC},
    {"kAFS", AFS_FS_MAGIC},
    {"9p", V9FS_MAGIC},
    {"OCFS2", OCFS2_SUPER_MAGIC},
    {"GFS2", 0x01161970},
    {"BeeGFS", 0x19830326},
    {"Coda", CODA_SUPER_MAGIC},
    {"NCP", NCP_SUPER_MAGIC},
    {"OrangeFS", 0x20030528},
    {"PanFS", 0xaad7aaea},
    {"VMware HGFS", 0xbacbacbc},
    {"VirtualBox", 0x786f4256},
    {"IBRIX", 0x013111a8},
    {"StorNext", 0xbeefdead},
    {"hostfs", HOSTFS_SUPER_MAGIC},
    {"Parallels", 0x7c7c6673},
    {"ACFS", 0x61636673},
    {"VxFS", 0xa501fcf5},
    {"M1FS", 0x5346314d},
    {"aufs", 0x61756673},
    {"WSL", 0x53464846},
};

// No place for a cache, or too rare to be trusted: the slower choice.
constexpr FileSystem kOthers[] = {
    {"configfs", 0x62656570},
    {"message queues", 0x19800202},
    {"rpc_pipefs", 0x67596969},
    {"inotify", 0x2bad1dea},
    {"sdcardfs", 0x5dca2df5},
    {"ADFS", ADFS_SUPER_MAGIC},
    {"AFFS", AFFS_SUPER_MAGIC},
    {"autofs", AUTOFS_SUPER_MAGIC},
    {"cramfs", CRAMFS_MAGIC},
    {"cramfs, other end first", CRAMFS_MAGIC_WEND},
    {"debugfs", DEBUGFS_MAGIC},
    {"securityfs", SECURITYFS_MAGIC},
    {"SELinux", SELINUX_MAGIC},
    {"SMACK", SMACK_MAGIC},
    {"hugetlbfs", HUGETLBFS_MAGIC},
    {"eCryptfs", ECRYPTFS_SUPER_MAGIC},
    {"EFS", EFS_SUPER_MAGIC},
    {"xenfs", XENFS_SUPER_MAGIC},
    {"HPFS", HPFS_SUPER_MAGIC},
    {"JFFS2", JFFS2_SUPER_MAGIC},
    {"pstore", PSTOREFS_MAGIC},
    {"efivarfs", EFIVARFS_MAGIC},
    {"Minix", MINIX_SUPER_MAGIC},
    {"Minix 30", MINIX_SUPER_MAGIC2},
    {"Minix 2", MINIX2_SUPER_MAGIC},
    {"Minix 2, 30", MINIX2_SUPER_MAGIC2},
    {"Minix 3", MINIX3_SUPER_MAGIC},
    {"openprom", OPENPROM_SUPER_MAGIC},
    {"QNX4", QNX4_SUPER_MAGIC},
    {"QNX6", QNX6_SUPER_MAGIC},
    {"cgroup", CGROUP_SUPER_MAGIC},
    {"cgroup 2", CGROUP2_SUPER_MAGIC},
    {"resctrl", RDTGROUP_SUPER_MAGIC},
    {"tracefs", TRACEFS_MAGIC},
    {"bdev", BDEVFS_MAGIC},
    {"DAX", DAXFS_MAGIC},
    {"binfmt_misc", BINFMTFS_MAGIC},
    {"devpts", DEVPTS_SUPER_MAGIC},
    {"binder", BINDERFS_SUPER_MAGIC},
    {"futex", FUTEXFS_SUPER_MAGIC},
    {"pipes", PIPEFS_MAGIC},
    {"proc", PROC_SUPER_MAGIC},
    {"sockets", SOCKFS_MAGIC},
    {"sysfs", SYSFS_MAGIC},
    {"USB devices", USBDEVICE_SUPER_MAGIC},
    {"MTD inodes", MTD_INODE_FS_MAGIC},
    {"anonymous inodes", ANON_INODE_FS_MAGIC},
    {"Btrfs test", BTRFS_TEST_MAGIC},
    {"namespaces", NSFS_MAGIC},
    {"BPF", BPF_FS_MAGIC},
    {"AppArmor", AAFS_MAGIC},
    {"zonefs", ZONEFS_MAGIC},
    {"UDF", UDF_SUPER_MAGIC},
    {"DMA buffers", DMA_BUF_MAGIC},
    {"device memory", DEVMEM_MAGIC},
    {"secret memory", SECRETMEM_MAGIC},
};

template <size_t kCount>
void check_journal(const FileSystem (&systems)[kCount], JournalMode expected) {
  for (const FileSystem& system : systems) {
    CAPTURE(std::string(system.name));
    ++test::fault_row("B", "type of file system").times;
    CHECK(journal_mode_for(system.type) == expected);
    // On a 32-bit system the same number is a negative one.
    CHECK(journal_mode_for(static_cast<int32_t>(system.type)) == expected);
  }
}

TEST_CASE("file systems of one machine get the write-ahead log, all others the rollback journal") {
  check_journal(kOfOneMachine, JournalMode::kWal);
  check_journal(kBetweenMachines, JournalMode::kRollback);
  check_journal(kOthers, JournalMode::kRollback);
}

TEST_CASE("an unknown file system gets the rollback journal") {
  for (const int64_t type : {0L, 1L, -1L, 0x12345678L}) {
    CHECK(journal_mode_for(type) == JournalMode::kRollback);
  }
  CHECK(journal_mode_of("/nonexistent/path") == JournalMode::kRollback);
}

TEST_CASE("the journal in the database is the one that its file system gets") {
  const test::TempDirectory temp;
  REQUIRE(Store::open(test::options_for(temp))->mode() == StoreMode::kReadWrite);
  const bool wal = journal_mode_of(temp.path()) == JournalMode::kWal;
  CHECK(test::RawDatabase(temp.database()).text("PRAGMA journal_mode") == (wal ? "wal" : "delete"));
}

}  // namespace
}  // namespace laya::cache
