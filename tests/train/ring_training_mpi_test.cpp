// Training steps over rings against the same steps on one rank, within one job: every gradient, under any layout,
// policy, bucket and random plans.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "skrull/core/rng.h"
#include "skrull/train/datasets.h"
#include "skrull/train/model_state.h"
#include "skrull/train/scheduling.h"
#include "skrull/train/step.h"
#include "support/catch.h"
#include "support/cost_model.h"
#include "support/mpi.h"
#include "training_fixture.h"

using namespace skrull;
using test::TokenRow;

namespace {

constexpr std::int64_t vocab_size = 131;
/// 16 samples: the row of one token has nothing to predict and is left out.
const std::vector<std::int64_t> lengths = {1, 2, 3, 7, 31, 64, 127, 500, 999, 1500, 2999, 12, 90, 33, 250, 5, 40};

int rank() {
  return test::mpi_session().rank();
}
int size() {
  return test::mpi_session().size();
}

/// Rows of these lengths; of every third only the second half is trained.
std::vector<TokenRow> rows_of(const std::vector<std::int64_t>& row_lengths) {
  std::vector<TokenRow> rows;
  std::int32_t next = 5;
  for (const std::int64_t length : row_lengths) {
    TokenRow row;
    for (std::int64_t t = 0; t < length; ++t) {
      row.ids.push_back(next = (next * 17 + static_cast<std::int32_t>(t % 7) + 3) % vocab_size);
    }
    if (rows.size() % 3 == 2) {
      row.labels = row.ids;
      std::fill_n(row.labels->begin(), length / 2, ignored_label);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

using Tensors = std::map<std::string, std::vector<float>>;

/// A step's results, the same on every rank.
struct Step {
  double loss = 0;
  double grad_norm = 0;
  Tensors gradients;
};

/// This rank's files and the batch they hold.
struct Data {
  explicit Data(const std::vector<TokenRow>& rows) {
    const auto self = make_self_communicator();
    ControlChannel control(*self);
    const auto file = fixture.write("rows.jsonl", rows);
    config = fixture.config(
        "out", {"dataset=" + file.string(), "model_name_or_path=" + test::tiny_model(model_name), "weight_decay=0.1"});
    store = open_token_store({file}, config, nullptr, vocab_size, fixture / "cache", control);
    samples = all_samples(*store);
    batch = describe_batch(*store, samples, LossWeighting::token_mean);
  }

  static constexpr const char* model_name = "untied_gqa4_d16";
  test::TrainingFixture fixture;
  TrainConfig config;
  std::shared_ptr<const TokenStore> store;
  std::vector<std::int64_t> samples;
  GlobalBatch batch;
};

struct Layout {
  int data_parallel = 1;
  int context_parallel = 1;

  int ranks() const { return data_parallel * context_parallel; }
};

/// A model in training on all ranks of the job, or on this rank alone.
class Training {
 public:
  Training(const Data& data, Layout layout, std::int64_t bucket_tokens, DType dtype)
      : data_(data),
        config_(config_of(data, layout, dtype)),
        rank_(layout.ranks() == 1 ? RankSession(config_, MpiSession::alone())
                                  : RankSession(config_, test::mpi_session())),
        state_(config_, rank_, true),
        model_(state_.config(), transformer_options(config_, bucket_tokens, true), rank_.device()),
        attention_(make_attention(state_.config(), model_.options(), rank_)) {
    REQUIRE(rank_.grid().data_parallel == layout.data_parallel);
  }

  Step step(const Plan& plan, double learning_rate = 0) {
    const StepBatches batches(*data_.store, data_.batch, plan, rank_.grid().data_rank, rank_.grid().context_rank);
    const StepOutcome outcome = run_step(batches, config_, learning_rate, model_, state_.parameters(), *attention_,
                                         rank_.device(), rank_.control());
    return {outcome.loss, outcome.grad_norm, gather([](const OwnedState& state) { return state.gradient; })};
  }

  Tensors weights() {
    return gather([](const OwnedState& state) { return ConstTensorView(state.parameter); });
  }

  /// Of every row of this rank's micro-batch.
  std::vector<std::vector<float>> logits(const MicroBatch& batch) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(batch.tokens()));
    std::iota(all.begin(), all.end(), 0);
    const Buffer memory = rank_.device().allocate(DType::float32, batch.tokens(), vocab_size, "test");
    const TensorView view = memory.view(DType::float32, batch.tokens(), vocab_size);
    attention_->begin(batch);
    model_.logits(batch, all, state_.parameters(), *attention_, view);
    std::vector<std::vector<float>> rows;
    for (std::int64_t row = 0; row < batch.tokens(); ++row) {
      const float* values = view.as<float>() + row * vocab_size;
      rows.emplace_back(values, values + vocab_size);
    }
    return rows;
  }

  ControlChannel& control() { return rank_.control(); }

 private:
  static TrainConfig config_of(const Data& data, Layout layout, DType dtype) {
    TrainConfig config = data.config;
    config.context_parallel_size = layout.context_parallel;
    config.compute_dtype = dtype;
    return config;
  }

  /// Every tensor whole, from the parts of all ranks.
  template <class Choose>
  Tensors gather(const Choose& choose) {
    Tensors tensors;
    Device& device = rank_.device();
    TrainableParameters& parameters = state_.parameters();
    const ParameterTable& table = parameters.table();
    for (int block = 0; block < table.block_count(); ++block) {
      const Buffer memory = device.allocate(DType::float32, 1, table.block_elements(block), "test");
      const TensorView whole = memory.view(DType::float32, 1, table.block_elements(block));
      const OwnedState own = parameters.owned(block);
      if (own.part.count > 0) {
        device.ops().cast(device.compute_stream(), choose(own), whole.slice_cols(own.part.begin, own.part.count));
      }
      Stream& communication = device.communication_stream();
      communication.wait(device.compute_stream().record());
      rank_.world().all_reduce_sum(communication, whole);  // zero but for the rank's own part
      communication.synchronize();
      for (const ParameterSpec& spec : table.parameters_of(block)) {
        const float* values = whole.as<float>() + spec.offset;
        tensors[spec.name].assign(values, values + spec.elements());
      }
    }
    return tensors;
  }

  const Data& data_;
  TrainConfig config_;
  RankSession rank_;
  ModelState state_;
  Transformer model_;
  std::unique_ptr<MicroBatchAttention> attention_;
};

Plan plan_of(const Data& data, Layout layout, const std::string& policy, std::int64_t bucket_tokens) {
  return make_plan(policy,
                   {data.batch.lengths, Topology{layout.data_parallel, layout.context_parallel, size()}, bucket_tokens},
                   *test::small_cost_model());
}

std::int64_t all_tokens() {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

/// Steps of one rank alone, known to rank 0 only: the others have nothing to compare.
std::vector<Step> steps_alone(const Data& data, DType dtype, int steps = 1, double learning_rate = 0) {
  std::vector<Step> result;
  if (rank() != 0) return result;
  Training alone(data, {}, all_tokens(), dtype);
  const Plan plan = plan_of(data, {}, "packed", all_tokens());
  for (int i = 0; i < steps; ++i) result.push_back(alone.step(plan, learning_rate));
  return result;
}

void check_same_step(const Step& step, const Step& expected, double tolerance) {
  CHECK(step.loss == Approx(expected.loss).epsilon(tolerance));
  CHECK(step.grad_norm == Approx(expected.grad_norm).epsilon(tolerance));
  CHECK(test::largest_relative_difference(step.gradients, expected.gradients) <= tolerance);
}

struct Case {
  Layout layout;
  std::string policy;
  std::int64_t bucket_tokens = 0;
};

/// Every policy on one ring of all ranks with the least bucket that holds the batch, the default one also with one that
/// holds all of it; two policies on two replicas; and ranks without rings.
std::vector<Case> cases() {
  std::vector<Case> result;
  const std::int64_t least = largest_zigzag_shard(2999, size());
  result.push_back({{1, size()}, "skrull", all_tokens()});
  for (const std::string& policy : policy_names()) {
    const bool changes_the_batch = policy == "sorted";
    if (!changes_the_batch) result.push_back({{1, size()}, policy, policy == "packed-balanced" ? least + 700 : least});
  }
  if (size() % 2 == 0 && size() > 2) {
    for (const char* policy : {"skrull", "packed"}) {
      result.push_back({{2, size() / 2}, policy, largest_zigzag_shard(2999, size() / 2)});
    }
  }
  result.push_back({{size(), 1}, "skrull", 2999});
  return result;
}

/// Every sequence on a random rank, or on a random ring, in one of `micro_batches`.
Plan random_plan(const Data& data, std::uint64_t seed, int micro_batches) {
  Rng rng(seed, "random plan");
  Plan plan = plan_of(data, {1, size()}, "packed", all_tokens());
  plan.micro_batches = {std::vector<PlannedMicroBatch>(static_cast<std::size_t>(micro_batches))};
  for (PlannedMicroBatch& batch : plan.micro_batches[0]) batch = empty_micro_batch(size());
  for (std::size_t i = 0; i < plan.lengths.size(); ++i) {
    PlannedMicroBatch& batch = plan.micro_batches[0][rng.below(static_cast<std::uint64_t>(micro_batches))];
    std::vector<int> ring;
    for (int member = 0; member < size(); ++member) {
      if (rng.below(3) > 0) ring.push_back(member);
    }
    if (ring.size() >= 2) {
      batch.distributed.push_back({static_cast<std::int64_t>(i), ring});
    } else {
      batch.local[rng.below(static_cast<std::uint64_t>(size()))].push_back(static_cast<std::int64_t>(i));
    }
  }
  auto& batches = plan.micro_batches[0];
  batches.erase(std::remove_if(batches.begin(), batches.end(), is_empty), batches.end());
  validate_plan(plan);
  return plan;
}

}  // namespace

TEST_CASE("loss and every gradient are those of one rank, under any layout, policy and bucket", "[ring_training]") {
  const Data data(rows_of(lengths));
  REQUIRE(data.batch.lengths.size() == 16);
  const std::vector<Step> alone = steps_alone(data, DType::float32);
  for (const auto& [layout, policy, bucket_tokens] : cases()) {
    INFO("DP " << layout.data_parallel << ", CP " << layout.context_parallel << ", " << policy << ", bucket "
               << bucket_tokens);
    Training training(data, layout, bucket_tokens, DType::float32);
    const Step step = training.step(plan_of(data, layout, policy, bucket_tokens));
    if (rank() == 0) check_same_step(step, alone[0], 1e-5);
  }
}

TEST_CASE("in bfloat16 too, within its rounding", "[ring_training]") {
  const Data data(rows_of(lengths));
  const std::vector<Step> alone = steps_alone(data, DType::bfloat16);
  const Layout layout{1, size()};
  const std::int64_t bucket = largest_zigzag_shard(2999, size());
  Training training(data, layout, bucket, DType::bfloat16);
  const Step step = training.step(plan_of(data, layout, "skrull", bucket));
  if (rank() == 0) check_same_step(step, alone[0], 2e-2);
}

TEST_CASE("ten steps stay together, and two runs have the same bits", "[ring_training]") {
  const Data data(rows_of({2, 3, 7, 31, 64, 127, 300, 45, 12}));
  constexpr int steps = 10;
  constexpr double learning_rate = 2e-3;
  const Layout layout{1, size()};
  const std::int64_t bucket = largest_zigzag_shard(300, size());
  const Plan plan = plan_of(data, layout, "skrull", bucket);
  std::vector<Step> runs[2];
  Tensors weights[2];
  for (int run = 0; run < 2; ++run) {
    Training training(data, layout, bucket, DType::float32);
    for (int i = 0; i < steps; ++i) runs[run].push_back(training.step(plan, learning_rate));
    weights[run] = training.weights();
  }
  for (int i = 0; i < steps; ++i) {
    const auto at = static_cast<std::size_t>(i);
    CHECK(runs[0][at].loss == runs[1][at].loss);
    CHECK(runs[0][at].grad_norm == runs[1][at].grad_norm);
    CHECK(runs[0][at].gradients == runs[1][at].gradients);
  }
  CHECK(weights[0] == weights[1]);
  const std::vector<Step> alone = steps_alone(data, DType::float32, steps, learning_rate);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    INFO("step " << i);
    // AdamW divides by the root of second moments: what rounding leaves of a small gradient grows step by step.
    CHECK(runs[0][i].loss == Approx(alone[i].loss).epsilon(1e-5));
    CHECK(runs[0][i].grad_norm == Approx(alone[i].grad_norm).epsilon(1e-4));
  }
  if (!alone.empty()) CHECK(alone.back().loss < alone.front().loss - 0.1);
}

TEST_CASE("rings that overlap in any way, in any number of micro-batches", "[ring_training]") {
  const Data data(rows_of({2, 3, 7, 31, 64, 127, 300, 45, 12, 90, 33, 5, 41}));
  const std::vector<Step> alone = steps_alone(data, DType::float32);
  Training training(data, {1, size()}, all_tokens(), DType::float32);
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    INFO("seed " << seed);
    const Step step = training.step(random_plan(data, seed, 1 + static_cast<int>(seed % 4)));
    if (rank() == 0) check_same_step(step, alone[0], 1e-5);
  }
}

TEST_CASE("a replica without any sequence joins in every collective", "[ring_training]") {
  if (size() % 2 != 0) return;
  const Data data(rows_of({31, 64, 127, 45}));
  const std::vector<Step> alone = steps_alone(data, DType::float32);
  const Layout layout{2, size() / 2};
  Plan plan = plan_of(data, layout, "packed", all_tokens());
  plan.micro_batches = {{}, {}};
  for (std::int64_t sequence = 0; sequence < 4; ++sequence) {
    for (auto& replica : plan.micro_batches) replica.push_back(empty_micro_batch(layout.context_parallel));
    PlannedMicroBatch& batch = plan.micro_batches[1].back();
    if (layout.context_parallel == 1) {
      batch.local[0] = {sequence};
    } else {
      batch.distributed = {{sequence, {0, layout.context_parallel - 1}}};
    }
  }
  validate_plan(plan);
  Training training(data, layout, all_tokens(), DType::float32);
  const Step step = training.step(plan);
  if (rank() == 0) check_same_step(step, alone[0], 1e-5);
}

TEST_CASE("the error does not grow with the ring", "[ring_training]") {
  const Data data(rows_of({500, 301, 127, 64}));
  const std::vector<Step> alone = steps_alone(data, DType::float32);
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    Training training(data, {1, size()}, all_tokens(), dtype);
    double of_two = 0;
    for (int ranks = 2; ranks <= size(); ++ranks) {
      Plan plan = plan_of(data, {1, size()}, "packed", all_tokens());
      plan.micro_batches = {{empty_micro_batch(size())}};
      std::vector<int> ring(static_cast<std::size_t>(ranks));
      std::iota(ring.begin(), ring.end(), 0);
      for (std::int64_t i = 0; i < 4; ++i) plan.micro_batches[0][0].distributed.push_back({i, ring});
      const Step step = training.step(plan);
      if (rank() != 0) continue;
      const double error = test::largest_relative_difference(step.gradients, alone[0].gradients);
      INFO(name_of(dtype) << ", ring of " << ranks << ": " << error << ", ring of 2: " << of_two);
      if (ranks == 2) of_two = error;
      CHECK(error > 0);
      CHECK(error <= 2 * of_two);
    }
  }
}

TEST_CASE("one changed token changes logits of its own sequence from there on, and no others", "[ring_training]") {
  const std::vector<std::int64_t> row_lengths = {37, 50, 21, 18};
  const auto rows = rows_of(row_lengths);
  const Data data(rows);
  Plan plan = plan_of(data, {1, size()}, "packed", all_tokens());
  plan.micro_batches = {{empty_micro_batch(size())}};
  std::vector<int> ring(static_cast<std::size_t>(size()));
  std::iota(ring.begin(), ring.end(), 0);
  PlannedMicroBatch& planned = plan.micro_batches[0][0];
  planned.distributed = {{0, ring}, {1, ring}, {2, {0, size() - 1}}};
  planned.local[1] = {3};
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    Training training(data, {1, size()}, all_tokens(), dtype);
    const auto batch_of = [&](const Data& some) {
      return assemble_micro_batch(*some.store, some.batch, plan, 0, rank(), 0);
    };
    const MicroBatch batch = batch_of(data);
    // Which sequence each row is of.
    std::vector<std::int64_t> sequences;
    for (const PackedSequence& sequence : batch.local) {
      sequences.insert(sequences.end(), static_cast<std::size_t>(sequence.length), sequence.sample);
    }
    for (const Ring& of_rank : batch.rings) {
      for (const PackedShard& shard : of_rank.shards) {
        sequences.insert(sequences.end(), static_cast<std::size_t>(shard.length()), shard.sample);
      }
    }
    const auto before = training.logits(batch);
    CHECK(training.logits(batch) == before);
    for (const auto& [sequence, place] :
         std::vector<std::pair<std::size_t, std::int64_t>>{{0, 0}, {0, 20}, {1, 11}, {1, 49}, {2, 13}, {3, 9}}) {
      INFO(name_of(dtype) << ", token " << place << " of sequence " << sequence << ", rank " << rank());
      auto changed = rows;
      std::int32_t& id = changed[sequence].ids[static_cast<std::size_t>(place)];
      id = (id + 1) % vocab_size;
      const auto after = training.logits(batch_of(Data(changed)));
      REQUIRE(after.size() == before.size());
      std::int64_t rows_changed = 0;
      for (std::size_t row = 0; row < after.size(); ++row) {
        if (after[row] == before[row]) continue;
        ++rows_changed;
        CHECK(sequences[row] == static_cast<std::int64_t>(sequence));
        CHECK(batch.positions[row] >= place);
      }
      CHECK(training.control().sum(rows_changed) == row_lengths[sequence] - place);
    }
  }
}
