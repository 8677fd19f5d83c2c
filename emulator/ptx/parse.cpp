#include <algorithm>
#include <array>
#include <optional>

#include "emulator/ptx/executions.h"
#include "emulator/ptx/program.h"
#include "emulator/ptx/tokens.h"

namespace qtrain::emulation::ptx {
namespace {

/// Register names while a function is parsed; those of an inner block hide those of outer blocks.
class Names {
 public:
  explicit Names(Function& function) : function_(function) { enter(); }

  void enter() { scopes_.emplace_back(); }
  bool leave() {
    scopes_.pop_back();
    return !scopes_.empty();
  }
  void declare(const std::string& name) { scopes_.back()[name] = add(name); }
  Register constant(std::uint64_t bits, const std::string& text) {
    const auto [known, first] = constants_.try_emplace(bits, 0);
    if (first) function_.constants.emplace_back(known->second = add(text), bits);
    return known->second;
  }
  std::optional<Register> find(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto known = scope->find(name); known != scope->end()) return known->second;
    return special(name);
  }

 private:
  Register add(const std::string& name) {
    function_.registers.push_back(name);
    return static_cast<Register>(function_.registers.size() - 1);
  }
  std::optional<Register> special(const std::string& name) {
    static const std::map<std::string_view, Special> all{
        {"%tid.x", Special::thread_x},    {"%tid.y", Special::thread_y},    {"%tid.z", Special::thread_z},
        {"%ntid.x", Special::threads_x},  {"%ntid.y", Special::threads_y},  {"%ntid.z", Special::threads_z},
        {"%ctaid.x", Special::block_x},   {"%ctaid.y", Special::block_y},   {"%ctaid.z", Special::block_z},
        {"%nctaid.x", Special::blocks_x}, {"%nctaid.y", Special::blocks_y}, {"%nctaid.z", Special::blocks_z},
        {"%laneid", Special::lane}};
    const auto known = all.find(name);
    if (known == all.end()) return {};
    scopes_.front()[name] = add(name);
    function_.specials.emplace_back(scopes_.front()[name], known->second);
    return scopes_.front()[name];
  }

  Function& function_;
  std::vector<std::map<std::string, Register>> scopes_;
  std::map<std::uint64_t, Register> constants_;
};

std::size_t bytes_of_type(std::string_view type, const Tokens& tokens) {
  for (const auto& [bits, bytes] : {std::pair{"8", 1}, {"16", 2}, {"32", 4}, {"64", 8}})
    if (type.ends_with(bits)) return static_cast<std::size_t>(bytes);
  tokens.refuse("unknown type '" + std::string(type) + "'");
}

bool has_result(std::string_view mnemonic) {
  return !std::ranges::any_of(
      std::to_array<std::string_view>({"st.", "bar.sync", "bar.warp.", "cp.async.", "bra", "ret", "exit", "trap",
                                       "nanosleep.", "wgmma.", "fence.", "mbarrier.init.", "mbarrier.inval.",
                                       "mbarrier.arrive.", "setmaxnreg."}),
      [&](std::string_view beginning) { return mnemonic.starts_with(beginning); });
}

using Offsets = std::map<std::string, std::size_t, std::less<>>;
/// Instruction indices per source line: the function, and the index in it.
using Lines = std::vector<std::pair<std::string, std::size_t>>;

class FunctionParser {
 public:
  /// `symbols`: offsets of shared memory. Adds the function to `program`, and its instructions per source file to
  /// `lines`.
  FunctionParser(Tokens& tokens, Offsets symbols, Program& program, std::map<int, Lines>& lines)
      : tokens_(tokens), names_(function_), symbols_(std::move(symbols)), lines_(lines) {
    function_.name = tokens_.take();
    parameters();
    launch_bounds();
    tokens_.take();
    body();
    if (!function_.lists.empty()) function_.in_products.resize(function_.registers.size());
    for (const auto& [at, label] : branches_) {
      if (!labels_.contains(label)) tokens_.refuse("unknown label " + label);
      function_.code[at].target = labels_.at(label);
    }
    program.functions[function_.name] = std::move(function_);
  }

 private:
  void parameters() {
    tokens_.expect("(");
    while (!tokens_.take_if(")")) {
      tokens_.expect(".param");
      std::size_t align = 0;
      if (tokens_.take_if(".align")) align = static_cast<std::size_t>(tokens_.number());
      std::size_t bytes = bytes_of_type(tokens_.take(), tokens_);
      align = std::max(align, bytes);
      if (tokens_.take_if(".ptr")) {  // what the compiler knows of the memory that a pointer points to
        tokens_.expect(".align");
        tokens_.number();
      }
      const std::string name(tokens_.take());
      if (tokens_.take_if("[")) {
        bytes *= static_cast<std::size_t>(tokens_.number());
        tokens_.expect("]");
      }
      const std::size_t offset = (function_.parameter_bytes + align - 1) / align * align;
      parameters_[name] = offset;
      function_.parameters.push_back({offset, bytes});
      function_.parameter_bytes = offset + bytes;
      tokens_.take_if(",");
    }
  }

  // ".maxntid 384, 1, 1" and ".minnctapersm 1" limit the registers of a thread; others do not matter here.
  void launch_bounds() {
    std::int64_t threads = 0, blocks = 1;
    while (tokens_.peek() != "{") {
      const std::string_view word = tokens_.take();
      if (word == ".maxntid") threads = tokens_.number();
      if (word == ".minnctapersm") blocks = tokens_.number();
    }
    constexpr std::int64_t kRegisters = 65536, kUnit = 8, kMost = 255;
    if (threads > 0)
      function_.thread_registers = static_cast<int>(std::min(kMost, kRegisters / (threads * blocks)) / kUnit * kUnit);
  }

  void body() {
    for (;;) {
      if (tokens_.take_if("}")) {
        if (!names_.leave()) return;
      } else if (tokens_.take_if("{")) {
        names_.enter();
      } else if (tokens_.peek().starts_with('.')) {
        directive(tokens_.take());
      } else if (tokens_.peek_second() == ":") {
        labels_[std::string(tokens_.take())] = static_cast<std::uint32_t>(function_.code.size());
        tokens_.take();
      } else if (!tokens_.take_if(";")) {
        instruction();
      }
    }
  }

  void directive(std::string_view name) {
    if (name == ".reg") return registers();
    if (name == ".loc") {
      file_ = static_cast<int>(tokens_.number());
      line_ = static_cast<unsigned>(tokens_.number());
      return tokens_.skip_line();
    }
    if (name == ".pragma") return tokens_.skip_past(";");
    if (name != ".local") tokens_.refuse("unknown directive " + std::string(name));
    tokens_.expect(".align");
    const auto align = static_cast<std::size_t>(tokens_.number());
    tokens_.expect(".b8");
    function_.local_bytes = (function_.local_bytes + align - 1) / align * align;
    symbols_[std::string(tokens_.take())] = function_.local_bytes;
    tokens_.expect("[");
    function_.local_bytes += static_cast<std::size_t>(tokens_.number());
    tokens_.expect("]");
  }

  // ".reg .b32 %r<3>;" declares %r0 to %r2.
  void registers() {
    tokens_.take();
    do {
      const std::string name(tokens_.take());
      if (!tokens_.take_if("<")) {
        names_.declare(name);
        continue;
      }
      const std::int64_t count = tokens_.number();
      for (std::int64_t n = 0; n < count; ++n) names_.declare(name + std::to_string(n));
      tokens_.expect(">");
    } while (tokens_.take_if(","));
  }

  void instruction() {
    Instruction i;
    if (tokens_.take_if("@")) {
      i.guarded = true;
      i.unless = tokens_.take_if("!");
      i.guard = register_of(tokens_.take());
    }
    const std::string mnemonic(tokens_.take());
    find_execution(i, mnemonic);
    i.traits = traits_of(mnemonic);
    i.place = {"", line_};
    if (mnemonic.starts_with("bra")) {
      branches_.emplace_back(function_.code.size(), tokens_.take());
    } else if (tokens_.peek() != ";") {
      if (mnemonic.starts_with("wgmma.mma_async.")) accumulators(i);
      if (tokens_.take_if("_")) tokens_.expect(",");  // a result that is not wanted
      bool result = has_result(mnemonic);
      do {
        operand(i, result);
        result = false;
      } while (tokens_.take_if(","));
    }
    if (i.offset != 0 && mnemonic.starts_with("cp.async")) tokens_.refuse("an offset in " + mnemonic);
    if (i.operand_count == kOperandsOfRows)
      for (std::size_t n = 0; i.list > 0 && n < 4; ++n) take_into_product(i.operands[n]);
    tokens_.expect(";");
    lines_[file_].emplace_back(function_.name, function_.code.size());
    function_.code.push_back(i);
  }

  void accumulators(Instruction& i) {
    std::vector<Register> list;
    tokens_.expect("{");
    do {
      list.push_back(register_of(tokens_.take()));
      take_into_product(list.back());
    } while (tokens_.take_if(","));
    tokens_.expect("}");
    tokens_.expect(",");
    auto& lists = function_.lists;  // products with the same accumulators share their list
    const auto known = std::find(lists.begin(), lists.end(), list);
    i.list = static_cast<std::uint32_t>(known - lists.begin()) + 1;
    if (known == lists.end()) lists.push_back(std::move(list));
  }
  void take_into_product(Register r) {
    if (function_.in_products.size() <= r) function_.in_products.resize(r + std::size_t{1});
    function_.in_products[r] = 1;
  }

  // Arithmetic on undefined values is allowed as long as the result is unused: compilers compute both sides of a
  // selection.
  void find_execution(Instruction& i, const std::string& mnemonic) const {
    for (const Executions* all : {&arithmetic(), &memory_access(), &cooperation(), &products(), &mbarriers()})
      if (const auto known = all->find(mnemonic); known != all->end()) {
        i.execute = known->second;
        i.strict = all != &arithmetic();
        return;
      }
    tokens_.refuse("unknown instruction " + mnemonic);
  }

  void operand(Instruction& i, bool result) {
    if (tokens_.take_if("[")) return address(i);
    if (tokens_.take_if("{")) {
      do append(i, value(), result);
      while (tokens_.take_if(","));
      return tokens_.expect("}");
    }
    append(i, value(), result);
    if (tokens_.take_if("|")) append(i, value(), result);
  }
  void address(Instruction& i) {
    const std::string name(tokens_.take());
    if (const auto known = parameters_.find(name); known != parameters_.end())
      i.offset = static_cast<std::int64_t>(known->second);
    else
      append(i, register_of(name), false);
    if (tokens_.take_if("+")) i.offset += tokens_.number();
    if (tokens_.take_if(",")) operand(i, false);  // the coordinates in a tensor
    tokens_.expect("]");
  }
  Register value() {
    const bool negative = tokens_.take_if("-");
    const std::string text(tokens_.take());
    if (text[0] < '0' || text[0] > '9') return register_of(text);
    const std::uint64_t bits = immediate(text, tokens_);
    return names_.constant(negative ? 0 - bits : bits, text);
  }
  // Also resolves the address of a symbol.
  Register register_of(std::string_view name) {
    for (const Offsets* symbols : {&symbols_, &parameters_})
      if (const auto known = symbols->find(name); known != symbols->end())
        return names_.constant(known->second, known->first);
    const auto known = names_.find(std::string(name));
    if (!known) tokens_.refuse("unknown register " + std::string(name));
    return *known;
  }
  void append(Instruction& i, Register r, bool result) {
    auto& count = result ? i.result_count : i.operand_count;
    if (count == (result ? Instruction::kMaxResults : Instruction::kMaxOperands)) tokens_.refuse("too many operands");
    (result ? i.results[count] : i.operands[count]) = r;
    ++count;
  }

  Tokens& tokens_;
  Function function_;
  Names names_;
  Offsets symbols_, parameters_;  ///< symbols_: shared and local memory
  std::map<std::string, std::uint32_t> labels_;
  std::vector<std::pair<std::size_t, std::string>> branches_;
  std::map<int, Lines>& lines_;
  int file_ = 0;
  unsigned line_ = 0;
};

}  // namespace

// File names are listed at the end of the text.
Program parse(std::string_view text, const std::string& name) {
  Tokens tokens(text, name);
  Program program;
  Offsets shared;
  std::map<int, Lines> lines;
  while (!tokens.at_end()) {
    const std::string_view word = tokens.take();
    if (word == ".entry") {
      FunctionParser(tokens, shared, program, lines);
    } else if (word == ".file") {
      const auto number = static_cast<int>(tokens.number());
      const std::string_view file = tokens.take();
      program.files.emplace_back(file.substr(1, file.size() - 2));
      for (const auto& [function, at] : lines[number])
        program.functions[function].code[at].place.file = program.files.back().c_str();
      tokens.skip_line();
    } else if (word == ".extern") {
      tokens.expect(".shared");
      tokens.expect(".align");
      tokens.number();
      tokens.expect(".b8");
      shared[std::string(tokens.take())] = 0;
      tokens.skip_past(";");
    } else if (word == ".section") {
      tokens.skip_past("}");
    } else if (word == ".version" || word == ".target" || word == ".address_size") {
      tokens.skip_line();
    } else if (word != ".visible" && word != ".weak") {
      tokens.refuse("unknown directive " + std::string(word));
    }
  }
  return program;
}

}  // namespace qtrain::emulation::ptx
