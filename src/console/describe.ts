/** OpenAPI descriptions of the console's pages and files. */
import { type RouteDescription, textContent } from '../http/describe.ts';

const PATH_PART = 'Part of the address of a page, which the script of the page reads.';

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
    about: 'All pages are one document. Its script calls the routes of this API.',
    ...(parameters.length === 0 ? {} : { parameters }),
    response: {
      status: 200,
      about: 'The document. It loads nothing from other servers.',
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
      about: 'Name of the file, which contains a hash of its contents.',
      example: 'console-3GEAIXXD.js',
    },
  ],
  response: {
    status: 200,
    about: 'A script, a style sheet or an image. A name always has the same contents.',
    headers: ['no-store', 'page-security'],
    content: Object.entries(EXAMPLES).map(([type, example]) => textContent(type, example)),
  },
  refusals: ['NOT_FOUND'],
};
