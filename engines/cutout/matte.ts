/**
 * Turns a small, soft mask into a full-size alpha channel with a guided filter (He, Sun, Tang
 * 2013). As in the fast variant of 2015, the coefficients are computed on a small copy and applied
 * at full size. Edges of the alpha channel follow edges of the image.
 */
import type { Turn } from '../../src/core/job-queue.ts';

/** `width * height` values in row order. */
export interface Plane {
  readonly width: number;
  readonly height: number;
  readonly values: Float32Array;
}

export interface Rgba {
  readonly width: number;
  readonly height: number;
  readonly data: Buffer;
}

/** Pixels per turn: about 0.2 seconds to encode. */
const BAND_PIXELS = 2_000_000;

/** Consecutive rows, `from` (inclusive) to `to` (exclusive), with at most `BAND_PIXELS` pixels. */
export function bandsOf({ width, height }: Rgba): { from: number; to: number }[] {
  const rows = Math.max(1, Math.floor(BAND_PIXELS / width));
  return Array.from({ length: Math.ceil(height / rows) }, (_, index) => ({
    from: index * rows,
    to: Math.min((index + 1) * rows, height),
  }));
}

/** Longer side, in pixels, of the copy on which the coefficients are computed. */
export const GUIDE_SIDE = 640;
/** Window radius as a share of the longer side: three to four pixels of a 256-pixel mask. */
const RADIUS_SHARE = 0.014;
/** Regularisation: colour variance (colours from 0 to 1) below this value counts as flat. */
const EPSILON = 4e-4;
/** Mask values below and above these bounds are treated as fully outside and fully inside. */
const CLEAR_BELOW = 0.06;
const CLEAR_ABOVE = 0.94;

/** Mean over a square window, clipped at the borders; its cost does not depend on the radius. */
function boxMean(
  source: Float32Array,
  width: number,
  height: number,
  radius: number,
): Float32Array {
  const rows = new Float32Array(source.length);
  for (let y = 0; y < height; y += 1) slide(source, rows, y * width, 1, width, radius);
  const result = new Float32Array(source.length);
  for (let x = 0; x < width; x += 1) slide(rows, result, x, width, height, radius);
  return result;
}

/** Box mean of one line: `length` values that are `step` apart, starting at `start`. */
function slide(
  source: Float32Array,
  target: Float32Array,
  start: number,
  step: number,
  length: number,
  radius: number,
): void {
  let sum = 0;
  for (let i = 0; i < Math.min(radius, length); i += 1) sum += source[start + i * step] ?? 0;
  for (let i = 0; i < length; i += 1) {
    const enter = i + radius;
    const leave = i - radius - 1;
    if (enter < length) sum += source[start + enter * step] ?? 0;
    if (leave >= 0) sum -= source[start + leave * step] ?? 0;
    const count = Math.min(enter, length - 1) - Math.max(leave + 1, 0) + 1;
    target[start + i * step] = sum / count;
  }
}

/** Resizes a plane bilinearly with aligned pixel centres. */
function resizePlane(plane: Plane, width: number, height: number): Plane {
  const values = new Float32Array(width * height);
  const line = new Float32Array(plane.width);
  const { left, share } = columns(plane.width, width);
  for (let y = 0; y < height; y += 1) {
    blendRows(plane, ((y + 0.5) * plane.height) / height - 0.5, line);
    for (let x = 0; x < width; x += 1) {
      values[y * width + x] = between(line, left[x] ?? 0, share[x] ?? 0);
    }
  }
  return { width, height, values };
}

/** For each of `width` target columns: the source column to the left, and the fraction past it. */
function columns(from: number, width: number): { left: Int32Array; share: Float64Array } {
  const left = new Int32Array(width);
  const share = new Float64Array(width);
  for (let x = 0; x < width; x += 1) {
    const source = Math.max(0, ((x + 0.5) * from) / width - 0.5);
    const column = Math.min(Math.floor(source), Math.max(0, from - 2));
    left[x] = column;
    share[x] = Math.min(source - column, 1);
  }
  return { left, share };
}

/** Writes the row at the fractional height `y` of `plane` into `line`. */
function blendRows(plane: Plane, y: number, line: Float32Array): void {
  const top = Math.max(0, Math.min(Math.floor(y), plane.height - 1));
  const bottom = Math.min(top + 1, plane.height - 1);
  const share = Math.max(0, Math.min(y - top, 1));
  const { values, width } = plane;
  for (let x = 0; x < width; x += 1) {
    const a = values[top * width + x] ?? 0;
    line[x] = a + ((values[bottom * width + x] ?? 0) - a) * share;
  }
}

function between(line: Float32Array, left: number, share: number): number {
  const a = line[left] ?? 0;
  return a + ((line[left + 1] ?? a) - a) * share;
}

function colour({ width, height, data }: Rgba, channel: 0 | 1 | 2): Float32Array {
  const values = new Float32Array(width * height);
  for (let i = 0; i < values.length; i += 1) values[i] = (data[i * 4 + channel] ?? 0) / 255;
  return values;
}

/**
 * Four planes: alpha = red * a[0] + green * a[1] + blue * a[2] + a[3]. In each window they are the
 * linear regression of the mask on the colours, regularised by `EPSILON`.
 */
function coefficients(guide: Rgba, mask: Plane): readonly [Plane, Plane, Plane, Plane] {
  const { width, height } = guide;
  const radius = Math.max(2, Math.round(Math.max(width, height) * RADIUS_SHARE));
  const mean = (values: Float32Array): Float32Array => boxMean(values, width, height, radius);
  // Inlined: a function call per value would double the time.
  const product = new Float32Array(width * height);
  const meanOfProduct = (a: Float32Array, b: Float32Array): Float32Array => {
    for (let i = 0; i < product.length; i += 1) product[i] = (a[i] ?? 0) * (b[i] ?? 0);
    return mean(product);
  };
  const [red, green, blue] = [colour(guide, 0), colour(guide, 1), colour(guide, 2)];
  const [meanR, meanG, meanB, meanP] = [mean(red), mean(green), mean(blue), mean(mask.values)];
  const crossR = meanOfProduct(red, mask.values);
  const crossG = meanOfProduct(green, mask.values);
  const crossB = meanOfProduct(blue, mask.values);
  const [meanRR, meanRG] = [meanOfProduct(red, red), meanOfProduct(red, green)];
  const [meanRB, meanGG] = [meanOfProduct(red, blue), meanOfProduct(green, green)];
  const [meanGB, meanBB] = [meanOfProduct(green, blue), meanOfProduct(blue, blue)];
  const plane = (): Float32Array => new Float32Array(width * height);
  const [outR, outG, outB, outP] = [plane(), plane(), plane(), plane()];
  for (let i = 0; i < width * height; i += 1) {
    const [r, g] = [meanR[i] ?? 0, meanG[i] ?? 0];
    const [b, p] = [meanB[i] ?? 0, meanP[i] ?? 0];
    const rr = (meanRR[i] ?? 0) - r * r + EPSILON;
    const rg = (meanRG[i] ?? 0) - r * g;
    const rb = (meanRB[i] ?? 0) - r * b;
    const gg = (meanGG[i] ?? 0) - g * g + EPSILON;
    const gb = (meanGB[i] ?? 0) - g * b;
    const bb = (meanBB[i] ?? 0) - b * b + EPSILON;
    const cr = (crossR[i] ?? 0) - r * p;
    const cg = (crossG[i] ?? 0) - g * p;
    const cb = (crossB[i] ?? 0) - b * p;
    // Inverse of the symmetric 3x3 covariance by cofactors; EPSILON keeps it positive definite.
    const i11 = gg * bb - gb * gb;
    const i12 = rb * gb - rg * bb;
    const i13 = rg * gb - rb * gg;
    const i22 = rr * bb - rb * rb;
    const i23 = rg * rb - rr * gb;
    const i33 = rr * gg - rg * rg;
    const determinant = rr * i11 + rg * i12 + rb * i13;
    const ar = (i11 * cr + i12 * cg + i13 * cb) / determinant;
    const ag = (i12 * cr + i22 * cg + i23 * cb) / determinant;
    const ab = (i13 * cr + i23 * cg + i33 * cb) / determinant;
    outR[i] = ar;
    outG[i] = ag;
    outB[i] = ab;
    outP[i] = p - ar * r - ag * g - ab * b;
  }
  const smooth = (values: Float32Array): Plane => ({ width, height, values: mean(values) });
  return [smooth(outR), smooth(outG), smooth(outB), smooth(outP)];
}

/**
 * Multiplies the alpha of `image` in place by the mask, refined along the edges of the image, in
 * turns. `guide` is a copy of the image whose longer side is about `GUIDE_SIDE`.
 */
export async function applyMatte(image: Rgba, guide: Rgba, mask: Plane, turn: Turn): Promise<void> {
  const planes = await turn(async () =>
    coefficients(guide, resizePlane(mask, guide.width, guide.height)),
  );
  for (const band of bandsOf(image)) await turn(async () => applyToRows(image, planes, band));
}

function applyToRows(
  { data, width, height }: Rgba,
  planes: readonly [Plane, Plane, Plane, Plane],
  { from, to }: { readonly from: number; readonly to: number },
): void {
  const guide = planes[0];
  const line = (): Float32Array => new Float32Array(guide.width);
  const [lineR, lineG, lineB, lineP] = [line(), line(), line(), line()];
  const { left, share } = columns(guide.width, width);
  for (let y = from; y < to; y += 1) {
    const sourceY = ((y + 0.5) * guide.height) / height - 0.5;
    blendRows(planes[0], sourceY, lineR);
    blendRows(planes[1], sourceY, lineG);
    blendRows(planes[2], sourceY, lineB);
    blendRows(planes[3], sourceY, lineP);
    for (let x = 0; x < width; x += 1) {
      const l = left[x] ?? 0;
      const s = share[x] ?? 0;
      const at = (y * width + x) * 4;
      const alpha =
        ((data[at] ?? 0) * between(lineR, l, s) +
          (data[at + 1] ?? 0) * between(lineG, l, s) +
          (data[at + 2] ?? 0) * between(lineB, l, s)) /
          255 +
        between(lineP, l, s);
      const clear = Math.max(0, Math.min((alpha - CLEAR_BELOW) / (CLEAR_ABOVE - CLEAR_BELOW), 1));
      data[at + 3] = Math.round((data[at + 3] ?? 0) * clear);
    }
  }
}
