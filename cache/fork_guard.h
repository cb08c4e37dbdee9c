// SQLite connections across fork(). Internal to cache/.
//
// SQLite keeps tables of open files and held locks in the process. A forked child inherits the
// tables but not the locks: a connection that it opens to the same file believes in locks that it
// does not hold, and can corrupt the database. So nothing is left to inherit: before a fork every
// ForkAware closes its connections, and parent and child open their own when they next need one.
#pragma once

namespace laya::cache {

class ForkAware {
 public:
  /// In the forking thread: take the locks that protect the connections and close these.
  virtual void before_fork() = 0;
  /// In parent and child, in the thread that forked: release the locks.
  virtual void after_fork(bool in_child) = 0;

 protected:
  ~ForkAware() = default;
};

/// Adds `object`; the first call installs the fork handlers. Call without holding its locks.
void watch_forks(ForkAware& object);
void unwatch_forks(ForkAware& object);

/// Whether this process came from one that used connections by a way that runs no fork handlers
/// (a bare clone()). It must not touch inherited connections, nor open new ones.
bool is_unguarded_child();

}  // namespace laya::cache
