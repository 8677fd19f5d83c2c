#include "text/tokenizer/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

constexpr std::size_t kLongStretch = 1024;  // bytes from which sorting first pays off: utf8proc uses insertion sort
constexpr char32_t kTableEnd = 0x30000;     // only rare ideographs and characters without normal forms above

int options_of(std::string_view name) {
  const int compat = name.find('K') != std::string_view::npos ? UTF8PROC_COMPAT : 0;
  return UTF8PROC_STABLE | compat | (name.back() == 'C' ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
}

// The characters of c's full decomposition.
std::size_t decompose(char32_t c, int options, std::array<utf8proc_int32_t, 32>& out) {
  int boundary = 0;
  const auto n =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), out.data(), static_cast<utf8proc_ssize_t>(out.size()),
                              static_cast<utf8proc_option_t>(options), &boundary);
  return n < 0 ? 0 : static_cast<std::size_t>(n);
}

int combining_class(char32_t c) {
  if (!known_to_normal_forms(c)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

}  // namespace

UnicodeForm::UnicodeForm(std::string_view name) : options_(options_of(name)), inert_(kTableEnd, true) {
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (options_ & UTF8PROC_COMPAT);
  std::array<utf8proc_int32_t, 32> parts{};
  for (char32_t c = 0x80; c < kTableEnd; ++c) {
    if (!known_to_normal_forms(c)) continue;
    const std::size_t n = decompose(c, options, parts);
    const bool composed = n > 1 || (n == 1 && parts[0] != static_cast<utf8proc_int32_t>(c));
    if (combining_class(c) != 0 || n == 0) inert_[c] = false;
    if (!composed) continue;
    // A composed character is its own NFC only if composition restores it.
    std::string self, form;
    append_utf8(self, c);
    append_part(self, form);
    if (form != self) inert_[c] = false;
    for (std::size_t i = 1; i < n; ++i)
      if (static_cast<char32_t>(parts[i]) < kTableEnd) inert_[static_cast<std::size_t>(parts[i])] = false;
  }
}

void UnicodeForm::append_part(std::string_view given, std::string& out) const {
  if (given.empty()) return;
  const std::string sorted = given.size() < kLongStretch ? "" : in_order(given);
  const std::string_view part = sorted.empty() ? given : sorted;
  utf8proc_uint8_t* result = nullptr;
  const auto n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(part.data()), static_cast<utf8proc_ssize_t>(part.size()),
                   &result, static_cast<utf8proc_option_t>(options_));
  check(n >= 0, "utf8proc refuses valid UTF-8");
  out.append(reinterpret_cast<char*>(result), static_cast<std::size_t>(n));
  std::free(result);
}

void UnicodeForm::append_form(std::string_view stretch, std::string& out) const {
  std::size_t last = 0;
  for (std::size_t i = 0; i < stretch.size();) {
    const Utf8Char c = utf8_at(stretch, i);
    if (c.value > 0x7F && !known_to_normal_forms(c.value)) {
      append_part(stretch.substr(last, i - last), out);
      out += stretch.substr(i, c.size);
      last = i + c.size;
    }
    i += c.size;
  }
  append_part(stretch.substr(last), out);
}

std::string UnicodeForm::in_order(std::string_view part) const {
  std::string sorted;
  for (const Part& p : parts_of(part)) append_utf8(sorted, p.value);
  return sorted;
}

// Decomposes into parts in canonical order.
std::vector<UnicodeForm::Part> UnicodeForm::parts_of(std::string_view text) const {
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (options_ & UTF8PROC_COMPAT);
  std::vector<Part> parts;
  std::array<utf8proc_int32_t, 32> values{};
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    i += c.size;
    std::size_t n = !known_to_normal_forms(c.value) ? 0 : decompose(c.value, options, values);
    if (n == 0) values[0] = static_cast<utf8proc_int32_t>(c.value);
    n = std::max<std::size_t>(n, 1);
    for (std::size_t k = 0; k < n; ++k) parts.push_back({static_cast<char32_t>(values[k]), k == 0 ? 1u : 0u});
  }
  const auto starts = [](const Part& p) { return combining_class(p.value) == 0; };
  for (auto run = parts.begin(); run != parts.end();) {
    run = std::find_if_not(run, parts.end(), starts);
    const auto end = std::find_if(run, parts.end(), starts);
    std::stable_sort(run, end,
                     [](const Part& a, const Part& b) { return combining_class(a.value) < combining_class(b.value); });
    run = end;
  }
  return parts;
}

// Like the library, maps a character of the normal form to the first of the characters whose first parts it contains.
// If it contains no first part, maps it to the previous character.
void UnicodeForm::put_form(const Change& change, TrackedBuilder& out) const {
  const auto& [start, stretch, form] = change;
  std::vector<Part> parts = parts_of(stretch);
  std::size_t first_unused = 0, from = 0, at = 0;  // `at`: next character of the stretch; `from`: previous one
  for (std::size_t i = 0; i < form.size();) {
    const std::string_view character = form.substr(i, utf8_at(form, i).size);
    i += character.size();
    std::uint32_t given = 0;
    for (const Part& wanted : parts_of(character)) {
      while (first_unused < parts.size() && parts[first_unused].used) ++first_unused;
      const auto part = std::find_if(parts.begin() + static_cast<std::ptrdiff_t>(first_unused), parts.end(),
                                     [&](const Part& p) { return !p.used && p.value == wanted.value; });
      if (part == parts.end()) continue;
      part->used = true;
      given += part->given;
    }
    const std::size_t begin = given > 0 ? at : from;
    const std::size_t end = begin < stretch.size() ? begin + utf8_at(stretch, begin).size : begin;
    out.replace(start + begin, start + end, character);
    for (; given > 0 && at < stretch.size(); --given) {
      from = at;
      at += utf8_at(stretch, at).size;
    }
  }
}

// Normalizes stretches separately that start with an inert character and continue with others.
void UnicodeForm::apply(TrackedText& text) const {
  if (is_ascii(text.text)) return;
  std::optional<TrackedBuilder> out;
  std::size_t kept = 0;  // end of what the builder already has
  const std::string_view all = text.text;
  std::size_t start = 0, next = 0;
  for (std::size_t at = 0; at < all.size(); at = next) {
    const Utf8Char c = utf8_at(all, at);
    next = at + c.size;
    if (is_inert(c.value)) {
      start = at;
      continue;
    }
    while (next < all.size()) {
      const Utf8Char follower = utf8_at(all, next);
      if (is_inert(follower.value)) break;
      next += follower.size;
    }
    std::string form;
    append_form(all.substr(start, next - start), form);
    if (form != all.substr(start, next - start)) {
      if (!out) out.emplace(text);
      out->keep(kept, start);
      put_form({start, all.substr(start, next - start), form}, *out);
      kept = next;
    }
    start = next;
  }
  if (!out) return;
  out->keep(kept, all.size());
  TrackedText result = out->take();
  text = std::move(result);
}

}  // namespace qtrain
