/**
 * Draws the portrait that the cutout tests use, and the true mask of its figure. Nobody's picture:
 * every shape is written here, so that it carries no rights and the true edge is known.
 */

const SIZE = { width: 640, height: 480 };

/** Outlines of the figure; the picture paints them in colour, the mask in white. */
const FIGURE = {
  body: 'M130 480 C140 390 190 355 262 338 L378 338 C450 355 500 390 510 480 Z',
  neck: 'M275 270 L275 340 C295 372 345 372 365 340 L365 270 Z',
  collar: 'M262 338 C285 385 355 385 378 338 L392 346 C365 402 275 402 248 346 Z',
  hair:
    'M236 190 C228 90 280 68 322 68 C376 66 414 98 404 190 C398 150 380 128 340 126 ' +
    'C300 128 262 132 248 150 C242 160 240 175 236 190 Z',
} as const;

function ellipse(x: number, y: number, rx: number, ry: number, fill: string): string {
  return `<ellipse cx="${x}" cy="${y}" rx="${rx}" ry="${ry}" fill="${fill}"/>`;
}

function path(d: string, fill: string): string {
  return `<path d="${d}" fill="${fill}"/>`;
}

function line(d: string, colour: string, width: number): string {
  return `<path d="${d}" stroke="${colour}" stroke-width="${width}" fill="none"/>`;
}

function gradient(id: string, from: string, to: string): string {
  return (
    `<linearGradient id="${id}" x1="0" y1="0" x2="1" y2="1"><stop offset="0" stop-color="${from}"/>` +
    `<stop offset="1" stop-color="${to}"/></linearGradient>`
  );
}

function svg(definitions: string, content: string): string {
  const { width, height } = SIZE;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">` +
    `<defs><filter id="soft"><feGaussianBlur stdDeviation="1.2"/></filter>${definitions}</defs>` +
    `${content}</svg>`
  );
}

function room(): string {
  return (
    '<rect width="640" height="480" fill="url(#wall)"/><g filter="url(#soft)">' +
    '<rect x="40" y="60" width="120" height="170" fill="#d8d2c2"/>' +
    '<rect x="52" y="72" width="96" height="146" fill="#7d94a5"/>' +
    '<rect x="500" width="26" height="480" fill="#5c6d63"/></g>'
  );
}

function face(): string {
  return [
    ellipse(320, 195, 78, 102, 'url(#skin)'),
    ellipse(241, 205, 12, 24, '#c98f69'),
    ellipse(399, 205, 12, 24, '#b07b57'),
    path(FIGURE.hair, 'url(#hair)'),
    line('M270 172 q18 -12 36 -2', '#3a2417', 5),
    line('M334 170 q18 -10 36 2', '#3a2417', 5),
    ...[289, 352].map((x) => ellipse(x, 192, 14, 8, '#f4efe9') + ellipse(x, 192, 6, 6, '#3b2c20')),
    line('M320 195 C316 215 308 230 312 238 C318 244 328 244 334 238', '#a96f4e', 4),
    path('M290 262 C305 256 335 256 350 262 C338 278 302 278 290 262 Z', '#a4504a'),
  ].join('');
}

/** The picture: a person before a wall. */
export function portraitSvg(): string {
  const definitions = [
    gradient('wall', '#9fb3b8', '#6d8076'),
    gradient('skin', '#f2c9a8', '#b9805c'),
    gradient('neck', '#a9714f', '#d3996f'),
    gradient('shirt', '#31486f', '#1b2740'),
    gradient('hair', '#4a3123', '#20130c'),
  ].join('');
  const body =
    path(FIGURE.body, 'url(#shirt)') +
    path(FIGURE.neck, 'url(#neck)') +
    path(FIGURE.collar, '#24365a');
  return svg(definitions, `${room()}<g filter="url(#soft)">${body}${face()}</g>`);
}

/** The true mask: the figure white, everything else black. */
export function portraitMaskSvg(): string {
  const figure = [
    ...Object.values(FIGURE).map((d) => path(d, '#fff')),
    ellipse(320, 195, 78, 102, '#fff'),
    ellipse(241, 205, 12, 24, '#fff'),
    ellipse(399, 205, 12, 24, '#fff'),
  ].join('');
  return svg('', `<rect width="640" height="480"/><g filter="url(#soft)">${figure}</g>`);
}
