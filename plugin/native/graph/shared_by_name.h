// What the kernels of both arms of a job share.

#ifndef STITCHFLEET_PLUGIN_NATIVE_GRAPH_SHARED_BY_NAME_H_
#define STITCHFLEET_PLUGIN_NATIVE_GRAPH_SHARED_BY_NAME_H_

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace stitchfleet {

// The object of type T with a name, made by `make` (which returns a shared_ptr, nullptr if it fails) if there is none. It lives as long
// as a kernel of either arm uses it. TensorFlow keeps a random operator's state in its kernel, so calls that destroy the kernels
// (tf.random.set_seed, clear_kernel_cache) start the sequence again. They destroy the kernels of both arms, so what they share starts
// again too. An arm whose executor is rebuilt while the other's is kept continues at the other's position.
template <typename T, typename Make>
std::shared_ptr<T> SharedByName(const std::string& name, const Make& make) {
  static std::mutex* mutex = new std::mutex;
  static auto* all = new std::unordered_map<std::string, std::weak_ptr<T>>;
  std::lock_guard<std::mutex> lock(*mutex);
  std::weak_ptr<T>& known = (*all)[name];
  std::shared_ptr<T> found = known.lock();
  if (found == nullptr) {
    found = make();
    known = found;
    static size_t swept = 64;
    if (all->size() > 2 * swept) {  // a job with many short-lived functions must not accumulate names
      for (auto it = all->begin(); it != all->end();) it = it->second.expired() ? all->erase(it) : std::next(it);
      swept = std::max<size_t>(64, all->size());
    }
  }
  return found;
}

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_GRAPH_SHARED_BY_NAME_H_
