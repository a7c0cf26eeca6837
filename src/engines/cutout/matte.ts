/**
 * Turns a small, soft mask into an alpha channel of the full image: a guided filter with the
 * colours as the guide (He, Sun, Tang 2013; in the fast form of 2015 the coefficients are found on
 * a small copy and applied at full size). Edges of the alpha follow edges of the picture.
 *
 * Pure arithmetic on arrays; no decoding, no model.
 */

/** Values in rows, `width * height` of them, for each plane. */
export interface Plane {
  readonly width: number;
  readonly height: number;
  readonly values: Float32Array;
}

/** 8-bit RGBA in rows. */
export interface Rgba {
  readonly width: number;
  readonly height: number;
  readonly data: Buffer;
}

/** The longer side of the copy on which the coefficients are found. */
export const GUIDE_SIDE = 640;
/** Window radius as a share of the longer side: three to four pixels of a 256-pixel mask. */
const RADIUS_SHARE = 0.014;
/** How much colour variance counts as texture; colours run from 0 to 1. */
const EPSILON = 4e-4;
/** Values below and above are taken as clearly outside and inside. */
const CLEAR_BELOW = 0.06;
const CLEAR_ABOVE = 0.94;

/** Mean over a square window, cut off at the borders, in time independent of the radius. */
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

/** One line of the box mean: `length` values that lie `step` apart, from `start` on. */
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

/** Bilinear copy of a plane in another size, pixel centres aligned. */
export function resizePlane(plane: Plane, width: number, height: number): Plane {
  const values = new Float32Array(width * height);
  const line = new Float32Array(plane.width);
  for (let y = 0; y < height; y += 1) {
    blendRows(plane, ((y + 0.5) * plane.height) / height - 0.5, line);
    for (let x = 0; x < width; x += 1) {
      values[y * width + x] = lineAt(line, ((x + 0.5) * plane.width) / width - 0.5);
    }
  }
  return { width, height, values };
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

function lineAt(line: Float32Array, x: number): number {
  const left = Math.max(0, Math.min(Math.floor(x), line.length - 1));
  return between(line, left, Math.max(0, Math.min(x - left, 1)));
}

/** The three colour planes of an image, from 0 to 1. */
function colours(image: Rgba): [Float32Array, Float32Array, Float32Array] {
  const count = image.width * image.height;
  const red = new Float32Array(count);
  const green = new Float32Array(count);
  const blue = new Float32Array(count);
  for (let i = 0; i < count; i += 1) {
    red[i] = (image.data[i * 4] ?? 0) / 255;
    green[i] = (image.data[i * 4 + 1] ?? 0) / 255;
    blue[i] = (image.data[i * 4 + 2] ?? 0) / 255;
  }
  return [red, green, blue];
}

function product(a: Float32Array, b: Float32Array): Float32Array {
  return a.map((value, index) => value * (b[index] ?? 0));
}

/** Four planes: alpha = red * a[0] + green * a[1] + blue * a[2] + a[3]. */
function coefficients(guide: Rgba, mask: Plane): Plane[] {
  const { width, height } = guide;
  const radius = Math.max(2, Math.round(Math.max(width, height) * RADIUS_SHARE));
  const mean = (values: Float32Array): Float32Array => boxMean(values, width, height, radius);
  const rgb = colours(guide);
  const [red, green, blue] = rgb;
  const means = rgb.map(mean);
  const meanMask = mean(mask.values);
  const cross = rgb.map((colour) => mean(product(colour, mask.values)));
  const squares = [
    [red, red],
    [red, green],
    [red, blue],
    [green, green],
    [green, blue],
    [blue, blue],
  ].map(([a = red, b = red]) => mean(product(a, b)));
  const out = [0, 1, 2, 3].map(() => new Float32Array(width * height));
  for (let i = 0; i < width * height; i += 1) {
    solvePixel(i, means, meanMask, cross, squares, out);
  }
  return out.map((values) => ({ width, height, values: mean(values) }));
}

/** Linear regression of the mask on the colours in one window, regularised by `EPSILON`. */
function solvePixel(
  i: number,
  means: readonly Float32Array[],
  meanMask: Float32Array,
  cross: readonly Float32Array[],
  squares: readonly Float32Array[],
  out: readonly Float32Array[],
): void {
  const at = (planes: readonly Float32Array[], index: number): number => planes[index]?.[i] ?? 0;
  const r = at(means, 0);
  const g = at(means, 1);
  const b = at(means, 2);
  const p = meanMask[i] ?? 0;
  const rr = at(squares, 0) - r * r + EPSILON;
  const rg = at(squares, 1) - r * g;
  const rb = at(squares, 2) - r * b;
  const gg = at(squares, 3) - g * g + EPSILON;
  const gb = at(squares, 4) - g * b;
  const bb = at(squares, 5) - b * b + EPSILON;
  const cr = at(cross, 0) - r * p;
  const cg = at(cross, 1) - g * p;
  const cb = at(cross, 2) - b * p;
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
  const [outR, outG, outB, outP] = out;
  if (outR === undefined || outG === undefined || outB === undefined || outP === undefined) return;
  outR[i] = ar;
  outG[i] = ag;
  outB[i] = ab;
  outP[i] = p - ar * r - ag * g - ab * b;
}

/**
 * Multiplies the alpha of `image` in place by the mask, refined along the picture's edges. `guide`
 * is a copy of the picture whose longer side is about `GUIDE_SIDE`.
 */
export function applyMatte(image: Rgba, guide: Rgba, mask: Plane): void {
  const planes = coefficients(guide, resizePlane(mask, guide.width, guide.height));
  const lines = planes.map((plane) => new Float32Array(plane.width));
  const [lineR, lineG, lineB, lineP] = lines;
  if (lineR === undefined || lineG === undefined || lineB === undefined || lineP === undefined)
    return;
  const { data, width, height } = image;
  const left = new Int32Array(width);
  const share = new Float32Array(width);
  for (let x = 0; x < width; x += 1) {
    const sourceX = Math.max(0, ((x + 0.5) * guide.width) / width - 0.5);
    left[x] = Math.min(Math.floor(sourceX), Math.max(0, guide.width - 2));
    share[x] = Math.min(sourceX - (left[x] ?? 0), 1);
  }
  for (let y = 0; y < height; y += 1) {
    const sourceY = ((y + 0.5) * guide.height) / height - 0.5;
    planes.forEach((plane, index) => blendRows(plane, sourceY, lines[index] ?? lineR));
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

function between(line: Float32Array, left: number, share: number): number {
  const a = line[left] ?? 0;
  return a + ((line[left + 1] ?? a) - a) * share;
}
