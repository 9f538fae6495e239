#include "device/cuda_scratch.h"

#include "skrull/core/error.h"
#include "skrull/core/text.h"

namespace skrull {

DeviceScratch::DeviceScratch(Device& device, Stream& compute_stream) : device_(device) {
  piece_of(compute_stream);
}

void* DeviceScratch::get(Stream& stream, std::int64_t bytes) {
  require(bytes <= piece_bytes, "an operation asks for {} of scratch memory, there are {} for each stream",
          format_bytes(bytes), format_bytes(piece_bytes));
  return piece_of(stream).data();
}

Buffer& DeviceScratch::piece_of(Stream& stream) {
  const auto found = pieces_.find(&stream);
  if (found != pieces_.end()) return found->second;
  return pieces_.emplace(&stream, device_.allocate(piece_bytes, "scratch of operations")).first->second;
}

}  // namespace skrull
