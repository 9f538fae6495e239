#include <cstdio>

#include "cli_parse.h"
#include "run_on_all_ranks.h"
#include "skrull/core/json.h"
#include "skrull/core/log.h"
#include "skrull/parallel/ring_benchmark.h"

namespace skrull::cli {
namespace {

struct RingBenchArguments {
  RingBenchmarkOptions options{.shape = {14, 2, 64}};
  bool json = false;
};

OrderedJson describe(const char* pass, const HiddenTransfers& times) {
  log::info("  {:<15} local {:8.2f} ms, transfer {:8.2f} ms, exposed {:8.2f} ms (at least {:8.2f}): {:5.1f}% hidden",
            pass, 1e3 * times.local, 1e3 * times.transfer, 1e3 * times.exposed, 1e3 * times.least_exposed(),
            100 * times.hidden_share());
  return {{"local_seconds", times.local},
          {"transfer_seconds", times.transfer},
          {"ring_work_beside_seconds", times.beside},
          {"exposed_seconds", times.exposed},
          {"least_exposed_seconds", times.least_exposed()},
          {"hidden_share", times.hidden_share()}};
}

void report(const RingBenchArguments& arguments, const RingBenchmark& result) {
  const RingBenchmarkOptions& options = arguments.options;
  log::info("{} ranks, {} tokens on the ring, {} in {} local sequences of each rank, {}", result.ranks,
            options.ring_tokens, options.local_tokens, options.local_sequences, name_of(options.compute_dtype));
  OrderedJson json = {{"bench", "ring"},
                      {"ranks", result.ranks},
                      {"compute_dtype", name_of(options.compute_dtype)},
                      {"ring_tokens", options.ring_tokens},
                      {"local_tokens", options.local_tokens}};
  json["forward"] = describe("forward", result.forward);
  json["backward"] = describe("backward", result.backward);
  json["forward_without_local"] = describe("  ring alone", result.forward_alone);
  json["backward_without_local"] = describe("  its backward", result.backward_alone);
  log::info(
      "  {} tokens: one rank {:.1f} + {:.1f} ms, {} ranks on a fast link {:.1f} + {:.1f} ms: {:.1f}% of one rank's "
      "rate per core",
      options.alone_tokens, 1e3 * result.one_rank_forward, 1e3 * result.one_rank_backward, result.ranks,
      1e3 * result.ring_forward, 1e3 * result.ring_backward, 100 * result.ring_efficiency());
  json["alone_tokens"] = options.alone_tokens;
  json["one_rank_seconds"] = {{"forward", result.one_rank_forward}, {"backward", result.one_rank_backward}};
  json["ring_seconds"] = {{"forward", result.ring_forward}, {"backward", result.ring_backward}};
  json["ring_efficiency"] = result.ring_efficiency();
  if (arguments.json) std::printf("%s\n", json.dump().c_str());
}

}  // namespace

int bench_ring(const Arguments& arguments) {
  CLI::App app(
      "Measures how much of a ring's transfers local attention hides, and how fast ring attention is, on an emulated "
      "network:\nmpirun -np 4 skrull bench ring. Every rank's time is that of its processor, as if it had a core of "
      "its own.",
      "skrull bench ring");
  RingBenchArguments parsed;
  RingBenchmarkOptions& options = parsed.options;
  app.option_defaults()->always_capture_default();
  app.add_option("--heads", options.shape.num_heads, "of queries")->check(at_least_one());
  app.add_option("--kv-heads", options.shape.num_kv_heads, "of keys and values")->check(at_least_one());
  app.add_option("--head-dim", options.shape.head_dim, "elements of a head")->check(at_least_one());
  app.add_option("--ring-tokens", options.ring_tokens, "of the sequence on the ring of all ranks")
      ->check(at_least_one());
  app.add_option("--local-tokens", options.local_tokens, "of each rank's local sequences")->check(at_least_one());
  app.add_option("--local-sequences", options.local_sequences, "that share them evenly")->check(at_least_one());
  app.add_option("--alone-tokens", options.alone_tokens, "of the sequence of which ring and one rank are compared")
      ->check(at_least_one());
  app.add_option("--turns", options.turns, "values are medians over them")->check(at_least_one());
  add_compute_dtype(app, options.compute_dtype);
  app.add_flag("--json", parsed.json, "print the result as one JSON object");
  if (!parse(app, arguments)) return static_cast<int>(ExitCode::done);
  return run_on_all_ranks([&](const MpiSession& session) {
    spread_over_cores(session.local_rank(), session.local_size());
    const std::unique_ptr<Device> device = make_cpu_device(1, TimeSource::processor);
    const std::unique_ptr<Communicator> world = session.world();
    const RingBenchmark result = bench_ring_attention(options, *device, *world);
    if (session.rank() == 0) report(parsed, result);
  });
}

}  // namespace skrull::cli
