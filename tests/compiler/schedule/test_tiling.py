"""The tile search: what it chooses fits, and more memory or threads never cost cycles."""

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.cli.bench.layers import CONVOLUTIONS as LAYERS
from tilewright.compiler.api import build
from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.schedule.depthwise import depthwise
from tilewright.compiler.schedule.layer import layer_of
from tilewright.compiler.schedule.tiling import SLACK, Work, _Candidates, best_tile, best_tiles, largest_tile, sizes
from tilewright.compiler.tile import OUTPUT_DIMS
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import CapacityError, ScheduleError
from tilewright.sim.timing import predict

VTA = PRESETS["vta"]


def work_of(shape):
    return Work.of(shape, VTA)


def blocks(n=1, o=1, c=1, size=(1, 1), kernel=(1, 1)):
    """Work of so many blocks, with padding only below and to the right."""
    pads = (0, 0, kernel[0] - 1, kernel[1] - 1)
    return Work.of(ConvShape(n, 16 * c, size[0], size[1], 16 * o, kernel, pads=pads), VTA)


def cost(work, cfg, tile):
    extents = {d: np.array([getattr(tile, d)]) for d in (*OUTPUT_DIMS, "ci")}
    cycles, instructions = _Candidates(work, cfg, tile, extents).estimate()
    return float(cycles[0]), float(instructions[0])


@pytest.mark.parametrize("name", LAYERS)
def test_resnet_layers_come_near_their_bound_in_few_instructions(name):
    layer = LAYERS[name]
    tile = best_tile(work_of(layer), VTA)
    cycles, instructions = cost(work_of(layer), VTA, tile)
    bound = layer.macs / VTA.macs_per_cycle
    assert cycles < (1.05 if layer.taps == 9 else 1.3) * bound and instructions < (600 if layer.taps == 9 else 800)


def test_two_threads_are_no_slower_than_one():
    for layer in LAYERS.values():
        one, two = (cost(work_of(layer), VTA, best_tile(work_of(layer), VTA, n))[0] for n in (1, 2))
        assert two <= one


def test_more_memory_is_never_slower():
    work = work_of(LAYERS["C9"])
    cycles = []
    for scale in (1, 2, 4, 8):
        sizes = {f"{mem}_bytes": getattr(VTA, f"{mem}_bytes") * scale // 8 for mem in ("inp", "wgt", "acc")}
        cfg = VTA.replace(name=f"scale{scale}", **sizes)
        cycles.append(cost(work, cfg, best_tile(work, cfg))[0])
    assert all(more <= less * (1 + SLACK) for less, more in zip(cycles, cycles[1:]))


def test_sizes_are_the_smallest_for_each_number_of_tiles():
    assert list(sizes(7, divisors_only=False)) == [1, 2, 3, 4, 7] and list(sizes(6, divisors_only=True)) == [1, 2, 3, 6]


def test_work_without_enough_tiles_gets_fewer_threads():
    assert best_tile(blocks(), VTA, 4).vthreads == 1
    assert best_tile(blocks(size=(3, 1)), VTA, 4).vthreads == 3


def test_candidates_differ_and_the_cheapest_comes_first():
    work = work_of(LAYERS["C6"])
    tiles = best_tiles(work, VTA, 2, 8)
    costs = [cost(work, VTA, tile)[0] for tile in tiles]
    assert len({(t.n, t.co, t.oy, t.ox, t.ci, t.thread) for t in tiles}) == 8
    assert costs == sorted(costs) and costs[0] <= cost(work, VTA, best_tile(work, VTA))[0] <= costs[0] * (1 + SLACK)


def test_the_heuristic_halves_the_longest_extent_until_it_fits():
    tile = largest_tile(blocks(o=8, c=16, size=(28, 28), kernel=(3, 3)), VTA)
    # 30 x 30 x 16 inputs do not fit 2048 entries: 28 -> 14 (oy), 28 -> 14 (ox), then 16 -> 8 (ci); 16 x 16 x 8 do
    assert (tile.co, tile.oy, tile.ox, tile.ci) == (4, 14, 14, 8)
    assert (tile.thread, tile.vthreads) == ("co", 2)


def test_the_heuristic_takes_fewer_threads_where_two_do_not_fit():
    small = VTA.replace(name="small", wgt_bytes=1 << 14)  # 64 entries
    assert largest_tile(blocks(o=4, size=(5, 5), kernel=(7, 7)), small).thread == "oy"
    assert largest_tile(blocks(o=4, kernel=(7, 7)), small).vthreads == 1
    with pytest.raises(CapacityError, match="no tile fits small: .* 81 of weights; it has 2048 and 64"):
        largest_tile(blocks(o=4, kernel=(9, 9)), small)


def test_channels_are_put_together_where_each_block_would_load_parameters_and_micro_ops_of_its_own():
    plus = PRESETS["pynq_z1_plus"]
    layer = layer_of(depthwise, plus, 1, 3, 3, 256, 3, 3, pad=(1, 1, 1, 1), epilogue=[("requant", "par")])
    tile = layer.best(2)
    alone = dataclasses.replace(tile, co=1)
    assert tile.co > 1 and cost(layer.work, plus, alone)[0] > 1.2 * cost(layer.work, plus, tile)[0]
    measured = [predict(build(layer.scheduled(each), plus).finish()).cycles for each in (tile, alone)]
    assert measured[0] < 0.8 * measured[1]


def test_two_load_ports_bring_a_tile_in_half_the_time():
    one = PRESETS["pynq_z1"]
    work = Work.of(ConvShape(1, 1024, 1, 1, 1024), one)
    two = one.replace(load_ports=2)
    cycles = [cost(work, cfg, best_tile(work, cfg))[0] for cfg in (one, two)]
    assert cycles[0] > (1 << 20) / 8 and (1 << 20) / 16 < cycles[1] < 0.53 * cycles[0]


def test_mistakes_are_named():
    with pytest.raises(ScheduleError, match="Tile.vthreads = 0: must be 1 to 4"):
        best_tile(blocks(), VTA, 0)
    with pytest.raises(CapacityError, match="no tile fits vta: .* 2500 entries of input and 2500 of weights"):
        best_tile(blocks(kernel=(1, 2500)), VTA)


def test_a_prime_number_of_input_blocks_is_divided_unevenly():
    prime, even = blocks(c=2003), blocks(c=2000)
    tile = best_tile(prime, VTA)
    assert 1 < tile.ci < 2003
    assert cost(prime, VTA, tile)[0] < 1.1 * cost(even, VTA, best_tile(even, VTA))[0]
    assert 2000 % best_tile(even, VTA).ci == 0  # divisors are enough where some are large


def test_a_prime_number_of_output_blocks_of_a_vector_is_divided_unevenly():
    assert best_tile(blocks(o=11, c=4), VTA).co == 6
    assert best_tile(blocks(o=12, c=4), VTA).co in (1, 2, 3, 4, 6)
    assert best_tile(blocks(n=2, o=11, c=4), VTA).co in (1, 11)  # of several vectors, divisors are enough


def test_a_vector_is_not_split_where_loads_are_spread_over_ports():
    two = PRESETS["pynq_z1"].replace(load_ports=2)
    for outputs in (2, 4, 11):
        assert best_tile(blocks(o=outputs, c=4), two).ci == 4
    most = two.wgt_depth // 2
    assert best_tile(blocks(o=2, c=2 * most), two).ci <= most  # what does not fit is split


CFG = Config("uneven", batch=2, block_in=8, block_out=4, inp_bytes=1 << 12, wgt_bytes=1 << 12, acc_bytes=1 << 14)


def test_blocks_are_rounded_up():
    work = Work.of(ConvShape(3, 20, 9, 8, 10, (3, 2), (2, 1)), CFG)
    assert (work.n, work.ci, work.co) == (2, 3, 3) and (work.oy, work.ox) == (4, 7)
    assert (work.operands, work.packed, work.alu_ops, work.planes) == (0, 0, 0, 1)


def test_of_channels_alone_there_is_one_input_block():
    work = Work.of(ConvShape(1, 20, 9, 8, 20, groups=20), CFG, depthwise=True)
    assert (work.ci, work.co) == (1, 5)


def test_several_taps_are_one_micro_op():
    one = Work.of(ConvShape(1, 20, 9, 8, 20, (3, 5), groups=20), CFG, depthwise=True)
    assert (one.issues, one.weight_rows) == (15, 15)
    assert (replace(one, row_taps=4).issues, replace(one, pitch=8).weight_rows) == (6, 24)


def test_a_kernel_of_one_row_skips_the_rows_between_its_strides():
    several, one = (Work.of(ConvShape(1, 8, 9, 9, 8, kernel, (2, 2)), CFG) for kernel in ((3, 3), (1, 3)))
    assert several.inputs(4, 4) == (9, 9) and one.inputs(4, 4) == (4, 9)


def test_a_configurations_name_is_none():
    name: Any = "vta"
    with pytest.raises(ScheduleError, match="configuration 'vta': must be a Config, as load_config"):
        Work.of(ConvShape(1, 8, 9, 9, 8), name)


def test_a_vector_is_one_pixel_whose_weights_are_used_once():
    assert Work.of(ConvShape(1, 64, 1, 1, 32), CFG).vector and Work.of(ConvShape(1, 8, 3, 3, 8, (3, 3)), CFG).vector
    assert not Work.of(ConvShape(1, 8, 3, 3, 8), CFG).vector
    assert not Work.of(ConvShape(1, 8, 1, 1, 8, groups=8), CFG, depthwise=True).vector
