#include "random_batch.h"

#include "skrull/core/rng.h"

namespace skrull {

MicroBatch random_batch(const std::vector<std::int64_t>& lengths, std::int64_t vocabulary) {
  MicroBatch batch;
  Rng rng(1, "step benchmark");
  const auto draw = [&] { return static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocabulary))); };
  for (const std::int64_t length : lengths) {
    batch.local.push_back({batch.tokens(), length, static_cast<std::int64_t>(batch.local.size())});
    for (std::int64_t position = 0; position < length; ++position) {
      batch.ids.push_back(draw());
      batch.positions.push_back(static_cast<std::int32_t>(position));
      batch.labels.push_back(position + 1 < length ? draw() : ignored_label);
      batch.weights.push_back(position + 1 < length ? 1e-3F : 0.0F);
    }
  }
  return batch;
}

}  // namespace skrull
