// The list of local file systems. Everything else counts as shared between hosts: NFS, SMB and
// CIFS, Lustre, GPFS, Ceph, AFS, 9p, BeeGFS, OCFS2, GFS2, FUSE (which may be sshfs) and the
// unknown.
#include "cache/file_system.h"

#include <sys/vfs.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace laya::cache {
namespace {

constexpr uint32_t kLocalTypes[] = {
    0x0000ef53,  // ext2, ext3, ext4
    0x58465342,  // XFS
    0x9123683e,  // Btrfs
    0x01021994,  // tmpfs
    0x858458f6,  // ramfs
    0x794c7630,  // overlayfs; its upper layer cannot be a network file system
    0xf2f52010,  // F2FS
    0x2fc12fc1,  // ZFS
    0xca451a4e,  // bcachefs
    0x3153464a,  // JFS
    0x52654973,  // ReiserFS
    0x3434,      // NILFS2
    0x24051905,  // UBIFS
    0x4d44,      // FAT
    0x2011bab0,  // exFAT
    0x7366746e,  // NTFS (ntfs3)
    0x482b,      // HFS+
    0x73717368,  // squashfs
    0xe0f5e1e2,  // EROFS
    0x9660,      // ISO 9660
};

}  // namespace

JournalMode journal_mode_for(int64_t type) {
  // All magic numbers have 32 bits; a 32-bit system hands out the upper half as negative numbers.
  const auto magic = static_cast<uint32_t>(type);
  const bool local =
      std::find(std::begin(kLocalTypes), std::end(kLocalTypes), magic) != std::end(kLocalTypes);
  return local ? JournalMode::kWal : JournalMode::kRollback;
}

JournalMode journal_mode_of(const std::filesystem::path& path) {
  struct statfs info = {};
  if (::statfs(path.c_str(), &info) != 0) return JournalMode::kRollback;
  return journal_mode_for(static_cast<int64_t>(info.f_type));
}

int64_t free_bytes(const std::filesystem::path& path) {
  struct statfs info = {};
  if (::statfs(path.c_str(), &info) != 0) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_bsize);
}

}  // namespace laya::cache
