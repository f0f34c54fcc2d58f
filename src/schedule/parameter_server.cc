// The parameter server: one rank, the root, hears every other rank in turn and then answers each in turn.
//
// M. Li et al.: Scaling distributed machine learning with the parameter server. OSDI 2014, reduced to one server and to
// one collective: what a star of workers around a server does without a library.
//
// Cost for n bytes (a rank's part, in gather and scatter) over p ranks: p - 1 rounds each way, one message each. The
// root sends or receives (p-1) n bytes, everybody else n; all_reduce does both. It is here for comparison, and for a
// root that has more bandwidth than the others; nothing else needs as long.
#include <algorithm>

#include "schedule/steps.h"

namespace ranvier {
namespace {

using namespace steps;

struct ParameterServer {
  Rank world;
  Rank rank;
  Rank root;
  std::vector<Step> steps = {};

  std::uint32_t turns() const { return static_cast<std::uint32_t>(world - 1); }
  // Of this worker.
  std::uint32_t turn() const { return static_cast<std::uint32_t>(around(rank - root, world) - 1); }
  Rank worker(std::uint32_t turn) const { return around(root + 1 + static_cast<Rank>(turn), world); }

  void collect() {
    if (rank != root) return steps.push_back(send(root, input(0), turn()));
    for (std::uint32_t t = 0; t < turns(); ++t)
      steps.push_back(recv_reduce(worker(t), t == 0 ? input(0) : output(0), output(0), t, t + 1 == turns()));
  }
  void answer(Place what, std::uint32_t first_round) {
    if (rank != root) return steps.push_back(recv(root, output(0), first_round + turn()));
    for (std::uint32_t t = 0; t < turns(); ++t) steps.push_back(send(worker(t), what, first_round + t));
  }
  void gather() {
    if (rank != root) return steps.push_back(send(root, input(0), turn()));
    steps.push_back(copy(input(0), output(chunk_of(rank)), 0));
    for (std::uint32_t t = 0; t < turns(); ++t) steps.push_back(recv(worker(t), output(chunk_of(worker(t))), t));
  }
  void scatter() {
    if (rank != root) return steps.push_back(recv(root, output(0), turn()));
    steps.push_back(copy(input(chunk_of(rank)), output(0), 0));
    for (std::uint32_t t = 0; t < turns(); ++t) steps.push_back(send(worker(t), input(chunk_of(worker(t))), t));
  }

  std::vector<Step> build(Collective collective) && {
    switch (collective) {
      case Collective::all_reduce:
        collect();
        answer(output(0), turns());
        break;
      case Collective::reduce:
        collect();
        break;
      case Collective::broadcast:
        if (rank == root) steps.push_back(copy(input(0), output(0), 0));
        answer(input(0), 0);
        break;
      case Collective::gather:
        gather();
        break;
      default:
        scatter();
    }
    return std::move(steps);
  }
};

}  // namespace

Schedule parameter_server(Collective collective, Rank world, Rank root) {
  check("parameter_server", collective,
        {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::gather, Collective::scatter},
        world, root);
  const bool by_rank = collective == Collective::gather || collective == Collective::scatter;
  return {.algorithm = "parameter_server",
          .collective = collective,
          .world = world,
          .root = root,
          .chunks = by_rank ? chunk_of(world) : 1,
          // Workers do not wait for one another; parts of a rank's own are better whole one after the other.
          .turns = by_rank ? 1 : std::max(static_cast<std::uint32_t>(world - 1), 1U),
          .program = [collective, world, root](Rank rank) {
            if (world == 1) return alone();
            return ParameterServer{.world = world, .rank = rank, .root = root}.build(collective);
          }};
}

}  // namespace ranvier
