// The one process-wide variable of this library, as fork handlers are process-wide too.
#include "cache/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace laya::cache {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<ForkAware*> objects;
  std::atomic<pid_t> pid{::getpid()};
};

Registry& registry();

void before() {
  registry().mutex.lock();
  for (ForkAware* object : registry().objects) object->before_fork();
}

void after(bool in_child) {
  if (in_child) registry().pid = ::getpid();
  for (ForkAware* object : registry().objects) object->after_fork(in_child);
  registry().mutex.unlock();
}

void after_in_parent() {
  after(false);
}
void after_in_child() {
  after(true);
}

Registry& registry() {
  // Never destroyed: a fork may come while the program ends.
  static Registry* const instance = [] {
    pthread_atfork(before, after_in_parent, after_in_child);
    return new Registry;
  }();
  return *instance;
}

}  // namespace

void watch_forks(ForkAware& object) {
  const std::lock_guard lock(registry().mutex);
  registry().objects.push_back(&object);
}

void unwatch_forks(ForkAware& object) {
  const std::lock_guard lock(registry().mutex);
  auto& objects = registry().objects;
  objects.erase(std::remove(objects.begin(), objects.end(), &object), objects.end());
}

bool is_unguarded_child() {
  return registry().pid != ::getpid();
}

}  // namespace laya::cache
