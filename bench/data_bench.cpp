// Preparing rows: packing by lengths, and tokenizing a text on one thread. The latter needs a tokenizer and a file with
// one JSON string per line: QTRAIN_TOKENIZER=DIR QTRAIN_TEXT=FILE.jsonl bench_data.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/rng.h"
#include "data/packing.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {
namespace {

void pack_lengths(benchmark::State& state) {
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(state.range(0)));
  for (std::size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = 1 + static_cast<std::int32_t>(philox(1, 2, i)[0] % 2048);
  for (auto _ : state) benchmark::DoNotOptimize(pack(Packing::bfd, lengths, 2048));
}
BENCHMARK(pack_lengths)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::vector<std::string> lines_of(const std::string& file) {
  std::ifstream in(file);
  std::vector<std::string> texts;
  for (std::string line; std::getline(in, line);) texts.push_back(parse_json(line, file).get<std::string>());
  return texts;
}

void tokenize_text(benchmark::State& state) {
  const std::string folder = environment("QTRAIN_TOKENIZER"), file = environment("QTRAIN_TEXT");
  if (folder.empty() || file.empty()) return state.SkipWithError("QTRAIN_TOKENIZER and QTRAIN_TEXT are not set");
  const auto tokenizer = load_tokenizer(folder);
  const std::vector<std::string> texts = lines_of(file);
  std::int64_t bytes = 0, tokens = 0;
  for (auto _ : state)
    for (const std::string& text : texts) {
      bytes += static_cast<std::int64_t>(text.size());
      tokens += static_cast<std::int64_t>(tokenizer->encode(text).size());
    }
  state.SetBytesProcessed(bytes);
  state.counters["tokens"] = static_cast<double>(tokens) / static_cast<double>(state.iterations());
}
BENCHMARK(tokenize_text)->Unit(benchmark::kMillisecond);

/// A word without any place to cut it: time has to be linear in its length.
void tokenize_word(benchmark::State& state) {
  const std::string folder = environment("QTRAIN_TOKENIZER");
  if (folder.empty()) return state.SkipWithError("QTRAIN_TOKENIZER is not set");
  const auto tokenizer = load_tokenizer(folder);
  std::string word(static_cast<std::size_t>(state.range(0)), 'a');
  for (std::size_t i = 0; i < word.size(); ++i) word[i] = static_cast<char>('a' + philox(1, 3, i)[0] % 26);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->encode(word));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(tokenize_word)->Arg(1'000)->Arg(10'000)->Arg(100'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace qtrain
