/** What the pages of the console and their files say of themselves. */
import { type RouteDescription, textContent } from '../http/describe.ts';

const PATH_PART = 'A page of the console; the script of the page reads it.';

const PARAMETERS = [
  { name: 'page', in: 'path', about: PATH_PART, example: 'activity' },
  { name: 'part', in: 'path', about: PATH_PART, example: 'accounts' },
] as const;

const SUMMARIES: Readonly<Record<string, string>> = {
  '/': 'The welcome page',
  '/console': 'The console',
  '/console/:page': 'A page of the console',
  '/console/:page/:part': 'A part of a page of the console',
};

export function pageDescription(path: string): RouteDescription {
  const parameters = PARAMETERS.filter(({ name }) => path.includes(`:${name}`));
  return {
    tag: 'Operations',
    summary: SUMMARIES[path] ?? 'The console',
    about: 'One document for every page; its script asks the routes that are described here.',
    ...(parameters.length === 0 ? {} : { parameters }),
    response: {
      status: 200,
      about: 'The document, which loads nothing from other servers.',
      headers: ['no-store', 'page-security'],
      content: [textContent('text/html')],
    },
  };
}

const EXAMPLES = {
  'text/javascript': 'import{h}from"./chunk-3TDX3WUV.js";',
  'text/css': ':root{color-scheme:light dark}',
  'image/svg+xml': '<svg xmlns="http://www.w3.org/2000/svg"/>',
};

export const ASSET: RouteDescription = {
  tag: 'Operations',
  summary: 'A file of the console',
  parameters: [
    {
      name: 'file',
      in: 'path',
      about: 'Its name, which has its hash in it.',
      example: 'console-3GEAIXXD.js',
    },
  ],
  response: {
    status: 200,
    about: 'A script, a style or a picture, the same under its name for ever.',
    headers: ['no-store', 'page-security'],
    content: Object.entries(EXAMPLES).map(([type, example]) => textContent(type, example)),
  },
  refusals: ['NOT_FOUND'],
};
