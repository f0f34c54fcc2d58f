// Flags of the subcommands: CLI11 takes the command line apart, and every wrong word gets one sentence with its remedy.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "output.h"
#include "ranvier/security.h"
#include "ranvier/types.h"
#include "ranvier/unequal_workers.h"

// The header of CLI11 takes seconds to compile: only those who define flags include it.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ranvier::cli {

using Arguments = std::vector<std::string>;

// Reads `arguments` into what the options of `app` are bound to. An exit code if there is nothing left to do (--help
// was printed). Throws Error{usage}; for an unknown option with the nearest one.
std::optional<int> parse(CLI::App& app, const Arguments& arguments);

// Of an option that the command line leaves out, as if it were there. `flag`: "--world".
void set_unless_given(CLI::App& app, const std::string& flag, const std::string& value);

// Throws Error{usage}, calling it `name`, for a flag whose value is neither yes nor no: CLI11 takes any number for yes,
// and has no words for others.
void check_answer(const CLI::Option&, const std::string& name, const std::string& word);

// "RANVIER_PORTS: " where its value came from that variable, else empty: what a refusal begins with.
std::string variable_of(const CLI::Option&);

// One of `names`, exactly.
CLI::Option* add_name(CLI::App&, const std::string& flags, std::string& value, const std::string& help,
                      std::vector<std::string_view> names);
// --transport, as parse_transport takes it.
CLI::Option* add_transport(CLI::App&, std::string& value, const std::string& help);
// One of `names`, with dims behind it where the algorithm takes them: "auto", "ring", "torus:2x4".
CLI::Option* add_algorithm(CLI::App&, std::string& value, const std::string& help, std::vector<std::string_view> names);
// "4", "64K", "16M".
CLI::Option* add_bytes(CLI::App&, const std::string& flags, std::size_t& bytes, const std::string& help);
// A whole number from `least` to `most`.
CLI::Option* add_count(CLI::App&, const std::string& flags, std::uint64_t& count, const std::string& help,
                       std::uint64_t least, std::uint64_t most = 1'000'000'000);
CLI::Option* add_count(CLI::App&, const std::string& flags, std::optional<std::uint64_t>& count,
                       const std::string& help, std::uint64_t least, std::uint64_t most = 1'000'000'000);
// "--x,!--no-x"; nothing where neither is given. (CLI11's own flags make false of that.)
CLI::Option* add_switch(CLI::App&, const std::string& flags, std::optional<bool>& value, const std::string& help);
// --key, --certificate, --private-key, --authority, --insecure, --encrypt-everywhere and their variables.
void add_security(CLI::App&, SecurityOptions& security);
std::vector<NamedFile> files_of(const SecurityOptions&);  // which are read
// Where ranks listen and how they prove who they are: --interface, --sockets, --ports, "20000-20100", those of
// add_security, and their variables.
void add_listening(CLI::App&, std::string& interface_address, std::uint64_t& sockets, PortRange& ports,
                   SecurityOptions& security);
// Bytes a second of --link-rate. Throws Error{usage} for what is no rate of a link; `or_several` is what may stand
// there as well.
double link_rate_of(const std::string& word, std::string_view or_several = "");
// Throws Error{usage} where what is in front of a spec's settings is none of `names`; `or_else`: what may stand there
// besides.
void require_name_in_front(std::string_view kind, std::string_view spec, std::span<const std::string_view> names,
                           std::string_view or_else);
// Throws Error{usage} where these are too few for so many ranks of one host.
void check_ports(const PortRange&, std::uint64_t ranks);
// --speeds, --jitter and --straggle. `what`: what they do to workers.
void add_unequal_workers(CLI::App&, UnequalWorkers& workers, const std::string& what);
// Seconds, as a positive decimal number.
CLI::Option* add_seconds(CLI::App&, const std::string& flags, std::chrono::milliseconds& time, const std::string& help);

}  // namespace ranvier::cli
