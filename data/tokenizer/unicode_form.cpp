#include "data/tokenizer/unicode_form.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "data/tokenizer/unicode.h"

namespace qtrain {
namespace {

constexpr char32_t kTableEnd = 0x30000;  // above are rare ideographs and what has no form

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

}  // namespace

UnicodeForm::UnicodeForm(std::string_view name) : options_(options_of(name)), inert_(kTableEnd, true) {
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (options_ & UTF8PROC_COMPAT);
  std::array<utf8proc_int32_t, 32> parts{};
  for (char32_t c = 0x80; c < kTableEnd; ++c) {
    const std::size_t n = decompose(c, options, parts);
    const bool composed = n > 1 || (n == 1 && parts[0] != static_cast<utf8proc_int32_t>(c));
    const bool mark = utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class != 0;
    if (mark || n == 0) inert_[c] = false;
    if (!composed) continue;
    // A composed character is its own NFC only if composing gives it back.
    std::string self, form;
    append_utf8(self, c);
    append_part(self, form);
    if (form != self) inert_[c] = false;
    for (std::size_t i = 1; i < n; ++i)
      if (static_cast<char32_t>(parts[i]) < kTableEnd) inert_[static_cast<std::size_t>(parts[i])] = false;
  }
}

void UnicodeForm::append_part(std::string_view part, std::string& out) const {
  if (part.empty()) return;
  utf8proc_uint8_t* result = nullptr;
  const auto n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(part.data()), static_cast<utf8proc_ssize_t>(part.size()),
                   &result, static_cast<utf8proc_option_t>(options_));
  check(n >= 0, "utf8proc refuses valid UTF-8");
  out.append(reinterpret_cast<char*>(result), static_cast<std::size_t>(n));
  std::free(result);
}

// Some decompositions are younger than the library: those characters stay.
void UnicodeForm::append_form(std::string_view stretch, std::string& out) const {
  std::size_t last = 0;
  for (std::size_t i = 0; i < stretch.size();) {
    const Utf8Char c = utf8_at(stretch, i);
    if (c.value > 0x7F && (options_ & (UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE)) && is_never_decomposed(c.value)) {
      append_part(stretch.substr(last, i - last), out);
      out += stretch.substr(i, c.size);
      last = i + c.size;
    }
    i += c.size;
  }
  append_part(stretch.substr(last), out);
}

// Stretches that begin with an inert character and go on with others are normalised by themselves.
void UnicodeForm::apply(TrackedText& text) const {
  if (is_ascii(text.text)) return;
  std::optional<TrackedBuilder> out;
  std::size_t kept = 0;  // up to here the builder has it
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
      out->replace(start, next, form);
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
