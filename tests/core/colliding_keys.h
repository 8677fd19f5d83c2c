#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

// Keys as somebody writes them into a file to make a hash table slow whose hash is known.
namespace qtrain::hostile {

/// Texts with the same std::hash in libstdc++, which is MurmurHash64A with a fixed seed. Each of their parts is one of
/// two that lead from the same state to the same state: a block can be solved for the one that leads to a given state.
inline std::vector<std::string> texts_of_one_hash(std::size_t count) {
  constexpr std::uint64_t kFactor = 0xc6a4a7935bd1e995u, kSeed = 0xc70f6907u, kNext = 0x0123456789abcdefu;
  constexpr std::size_t kPart = 16, kParts = 14;
  const auto shifted = [](std::uint64_t v) { return v ^ (v >> 47); };  // its own inverse
  std::uint64_t inverse = kFactor;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kFactor * inverse;
  std::uint64_t state = kSeed ^ kPart * kParts * kFactor, number = 0;
  const auto next_part = [&] {
    for (;; ++number) {
      std::string part(kPart, 'a');
      std::uint64_t left = number, block = 0;
      for (std::size_t i = 0; i < 8; ++i, left /= 26) part[i] = static_cast<char>('a' + left % 26);
      std::memcpy(&block, part.data(), 8);
      const std::uint64_t middle = (state ^ shifted(block * kFactor) * kFactor) * kFactor;
      block = shifted((middle ^ kNext) * inverse) * inverse;
      std::memcpy(part.data() + 8, &block, 8);
      const auto plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
      if (!std::all_of(part.begin() + 8, part.end(), plain)) continue;
      ++number;
      return part;
    }
  };
  std::vector<std::string> texts{""};
  for (std::size_t i = 0; i < kParts; ++i) {
    const std::string one = next_part(), other = next_part();
    const std::size_t before = texts.size();
    for (std::size_t t = 0; t < before; ++t) texts.push_back(texts[t] + other);
    for (std::size_t t = 0; t < before; ++t) texts[t] += one;
    state = kNext * kFactor;
  }
  texts.resize(count);
  return texts;
}

inline std::vector<std::string> ordinary_texts(std::size_t count) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i)
    texts.push_back(std::string(208, 'k') + std::to_string(10'000'000'000'000 + 7919 * i));
  return texts;
}

/// Numbers that fall into one bucket of a std::unordered_set of as many.
inline std::vector<std::int64_t> numbers_of_one_bucket(std::size_t count) {
  std::unordered_set<std::int64_t> set;
  for (std::size_t i = 0; i < count; ++i) set.insert(static_cast<std::int64_t>(i));
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 1; i <= count; ++i) numbers.push_back(static_cast<std::int64_t>(i * set.bucket_count()));
  return numbers;
}

/// The least processor time of this thread in three calls.
inline double cpu_seconds(const std::function<void()>& call) {
  const auto now = [] {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double begin = now();
    call();
    least = std::min(least, now() - begin);
  }
  return least;
}

}  // namespace qtrain::hostile
