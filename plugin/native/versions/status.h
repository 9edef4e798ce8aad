// The result of an operation, in the class that TensorFlow uses: absl::Status since 2.14, a class of TensorFlow's own before.
#pragma once

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "tensorflow/core/platform/errors.h"

namespace stitchfleet {

using Status = decltype(tensorflow::errors::Aborted(""));

inline Status Ok() { return Status(); }

namespace status_internal {
template <typename S>
auto Message(const S& status, int) -> decltype(std::string(status.message())) {
  return std::string(status.message());
}
template <typename S>
std::string Message(const S& status, long) {
  return status.error_message();
}
}  // namespace status_internal

// The text of a failure.
inline std::string Message(const Status& status) { return status_internal::Message(status, 0); }

// The same failure with another text. A payload is a Cord, or a string before 2.13.
inline Status WithText(const Status& status, absl::string_view text) {
  Status changed(status.code(), std::string(text));
  status.ForEachPayload([&changed](absl::string_view type, const auto& payload) { changed.SetPayload(type, absl::Cord(payload)); });
  return changed;
}

}  // namespace stitchfleet
