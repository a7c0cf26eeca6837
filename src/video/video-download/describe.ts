/** The description of the download URL of a video in the API document. */
import * as z from 'zod';
import {
  type ParameterDescription,
  type RouteDescription,
  jsonResponse,
} from '../../http/describe.ts';
import { VIDEOS } from '../video-generation/describe.ts';

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
  about:
    'The URL is the credential: any client that has it can download the video, so keep it secret.',
  parameters: [
    TOKEN,
    {
      name: 'range',
      in: 'header',
      about: 'Range of bytes, as players and resumed downloads request it.',
      example: 'bytes=0-1023',
    },
    {
      name: 'if-range',
      in: 'header',
      about: 'The `etag` of an earlier response; with another one the complete video is sent.',
      example: '"0b6f0c2e-4a52-4c0e-9a3c-5d4f6b1c7e10"',
    },
  ],
  response: [
    {
      status: 200,
      about: 'The video.',
      headers: ['download', 'range', 'no-store'],
      content: VIDEOS,
    },
    {
      status: 206,
      about: 'The requested range of the video.',
      headers: ['download', 'range', 'no-store'],
      content: VIDEOS,
    },
  ],
  refusals: ['MEDIA_NOT_FOUND', 'RANGE_NOT_SATISFIABLE', 'RATE_LIMIT_EXCEEDED'],
};

export const VIDEO_REVOKE: RouteDescription = {
  tag: 'Video',
  summary: 'Revoke a download URL',
  parameters: [TOKEN],
  response: jsonResponse(
    'The URL is revoked, and the video is deleted.',
    z.strictObject({ success: z.literal(true).describe('Always `true`.') }),
    { success: true },
  ),
  refusals: ['MEDIA_NOT_FOUND', 'RATE_LIMIT_EXCEEDED'],
};
