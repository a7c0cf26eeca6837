/** The description of the download URL of a video in the API document. */
import { z } from 'zod';
import {
  type ParameterDescription,
  type RouteDescription,
  jsonResponse,
} from '../../http/describe.ts';
import { FILMS } from '../video-generation/describe.ts';

const TOKEN: ParameterDescription = {
  name: 'token',
  in: 'path',
  about: 'The last part of `download_url`.',
  schema: z.string().regex(/^[A-Za-z0-9_-]{43}$/),
  example: 'Q2hhaW5zLW9mLWxldHRlcnMtdGhhdC1hcmUtc2VjcmV0',
};

export const VIDEO_DOWNLOAD: RouteDescription = {
  tag: 'Video',
  summary: 'Download a video',
  about: 'The address is the credential: whoever has it can load the video, so keep it secret.',
  parameters: [
    TOKEN,
    {
      name: 'range',
      in: 'header',
      about: 'A part of the film, as players and resumed downloads ask for it.',
      example: 'bytes=0-1023',
    },
    {
      name: 'if-range',
      in: 'header',
      about: 'The `etag` of an earlier answer: with another one the film comes whole.',
      example: '"0b6f0c2e-4a52-4c0e-9a3c-5d4f6b1c7e10"',
    },
  ],
  response: [
    {
      status: 200,
      about: 'The video.',
      headers: ['download', 'range', 'no-store'],
      content: FILMS,
    },
    {
      status: 206,
      about: 'The part that was asked for.',
      headers: ['download', 'range', 'no-store'],
      content: FILMS,
    },
  ],
  refusals: ['MEDIA_NOT_FOUND', 'RANGE_NOT_SATISFIABLE', 'RATE_LIMIT_EXCEEDED'],
};

export const VIDEO_REVOKE: RouteDescription = {
  tag: 'Video',
  summary: 'Revoke a download address',
  parameters: [TOKEN],
  response: jsonResponse(
    'The address leads nowhere from now on.',
    z.strictObject({ success: z.literal(true).describe('The file is gone.') }),
    { success: true },
  ),
  refusals: ['MEDIA_NOT_FOUND', 'RATE_LIMIT_EXCEEDED'],
};
