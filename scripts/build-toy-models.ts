/**
 * Tiny ONNX models with the signatures of real ones, so that engines are tested on any machine
 * without a download. They are written into a test's own folder, never committed.
 */
import { writeOnnx } from './onnx-writer.ts';

/**
 * A model with the input and the first two of the seven outputs of U-2-Net whose answer is plain
 * brightness: what is bright is kept.
 */
export function toyCutoutModel(): Buffer {
  const mask = (name: string) => ({ name, type: 'float' as const, shape: [1, 1, 320, 320] });
  return writeOnnx({
    name: 'toy-cutout',
    opset: 17,
    nodes: [
      {
        type: 'ReduceMean',
        inputs: ['input.1'],
        outputs: ['d0'],
        attributes: { axes: { ints: [1] }, keepdims: { int: 1 } },
      },
      { type: 'Neg', inputs: ['d0'], outputs: ['d1'] },
    ],
    constants: [],
    inputs: [{ name: 'input.1', type: 'float', shape: [1, 3, 320, 320] }],
    outputs: [mask('d0'), mask('d1')],
  });
}
