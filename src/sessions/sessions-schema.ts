/** What the session routes say of themselves. */
import { z } from 'zod';
import { type RouteDescription, jsonResponse, jsonContent, listOf } from '../http/describe.ts';
import { PLANS } from '../identity/identity.ts';

const Time = z.string().describe('ISO 8601, UTC.');
const KIND = z.enum(['key', 'wallet']).describe('What signed in.');

export type SessionItem = z.infer<typeof SessionItem>;
export const SessionItem = z
  .object({
    id: z.string().describe('Names the session in lists; no secret.'),
    kind: KIND.describe('What signed in: an API key, a wallet, or a link of the operator.'),
    accountId: z.string().describe('The account whose balance pays.'),
    keyId: z.string().nullable().describe('The API key that the session acts as.'),
    keyKind: z
      .enum(['INFERENCE', 'ADMIN'])
      .describe('ADMIN also manages keys; a wallet is INFERENCE.'),
    keyDescription: z.string().nullable().describe('What the key is for.'),
    wallet: z.string().nullable().describe('The address that the session acts as.'),
    plan: z.enum(PLANS).describe('The plan of the account.'),
    isOperator: z.boolean().describe('Whether the routes under `/admin` answer it.'),
    csrfToken: z.string().describe('What a write shows in the header `X-CSRF-Token`.'),
    createdAt: Time,
    expiresAt: Time,
  })
  .meta({ id: 'ConsoleSession' });

const Challenge = z
  .object({
    info: z
      .object({
        domain: z.string().describe('Who asks for the sign-in.'),
        uri: z.string().describe('What it is for.'),
        version: z.string().describe('Version of the text.'),
        nonce: z.string().describe('To be used once.'),
        issuedAt: Time,
        expirationTime: Time,
        statement: z.string().describe('What the wallet shows to its owner.'),
      })
      .describe('Fields of the message (EIP-4361).'),
    supportedChains: z
      .array(
        z.object({
          chainId: z.string().describe('CAIP-2.'),
          type: z.string().describe('How it signs.'),
        }),
      )
      .describe('Where a wallet may sign.'),
  })
  .describe('What a wallet signs for the header `SIGN-IN-WITH-X`.');

export type ConsoleResponse = z.infer<typeof ConsoleResponse>;
export const ConsoleResponse = z
  .object({
    object: z.literal('console').describe('Kind of the object.'),
    service: z
      .object({
        name: z.string().describe('Short name, in headers.'),
        title: z.string().describe('Name for people.'),
      })
      .describe('The service by its names.'),
    publicUrl: z.string().describe('Public origin.'),
    session: SessionItem.nullable().describe('Null for who is not signed in.'),
    wallet: Challenge.nullable().describe('Null on a server without wallet payments.'),
  })
  .meta({ id: 'Console' });

export const SessionResponse = z.object({ session: SessionItem });

export const LinkRequest = z
  .object({ token: z.string().min(1).max(200).describe('What stands after `#` in the link.') })
  .meta({ id: 'SignInLinkRequest' });

export type SessionListResponse = z.infer<typeof SessionListResponse>;
export const SessionListResponse = listOf(
  z.object({
    id: z.string().describe('Names the session; no secret.'),
    kind: KIND.describe('What signed in.'),
    keyId: z.string().nullable().describe('The API key that signed in.'),
    wallet: z.string().nullable().describe('The wallet that signed in.'),
    isCurrent: z.boolean().describe('The session that asks.'),
    createdAt: Time,
    lastUsedAt: Time.describe('Up to a minute old.'),
    expiresAt: Time,
    userAgent: z.string().describe('What the browser called itself at sign-in.'),
    address: z.string().describe('Where it signed in from.'),
  }),
  'Newest first.',
);

const EndedResponse = z.object({ success: z.literal(true).describe('It has ended.') });

const ID = 'session_019aa3f1c0de4b7e8c1d2e3f';
const SESSION: SessionItem = {
  id: ID,
  kind: 'key',
  accountId: 'acct_019aa3f1c0de',
  keyId: 'key_019aa3f1c0de',
  keyKind: 'ADMIN',
  keyDescription: 'first key',
  wallet: null,
  plan: 'staff',
  isOperator: true,
  csrfToken: '5f3e…',
  createdAt: '2026-11-21T04:00:00.000Z',
  expiresAt: '2026-11-28T04:00:00.000Z',
};

export const CONSOLE: RouteDescription = {
  tag: 'Console',
  summary: 'Who is signed in',
  about: 'Always 200, so that a page can ask first. A cookie whose session has ended is cleared.',
  response: jsonResponse(
    'The session of the cookie, and what a sign-in needs.',
    ConsoleResponse,
    {
      object: 'console',
      service: { name: 'svc', title: 'Farebox' },
      publicUrl: 'https://api.example.com',
      session: SESSION,
      wallet: null,
    },
    'session',
    'no-store',
  ),
};

const SIGNED_IN = jsonResponse(
  'The session; its secret is in the cookie and nowhere else.',
  SessionResponse,
  { session: SESSION },
  'session',
  'no-store',
);

export const SIGN_IN: RouteDescription = {
  tag: 'Console',
  summary: 'Sign in',
  about:
    'Exchanges the credential of this request for a session: an API key (`Authorization: Bearer`), or the signature of a wallet (`SIGN-IN-WITH-X`). A session lives for seven days and ends with its key; an older session of the browser ends.',
  response: SIGNED_IN,
};

export const LINK: RouteDescription = {
  tag: 'Console',
  summary: 'Sign in by a link',
  about: 'Uses up the link that the terminal printed. A link lives for 15 minutes.',
  request: jsonContent(LinkRequest, { token: 'q3Jz0hXw7cM5b1uYk9eTnVfR2sAoLdP6iGxZ8mKtWQE' }),
  response: SIGNED_IN,
  refusals: [
    'AUTHENTICATION_FAILED',
    'API_ACCESS_DISABLED',
    'RATE_LIMIT_EXCEEDED',
    'CSRF_CHECK_FAILED',
  ],
};

export const SIGN_OUT: RouteDescription = {
  tag: 'Console',
  summary: 'Sign out',
  about: 'The session is over at once, wherever its cookie is shown.',
  response: jsonResponse('The session has ended.', EndedResponse, { success: true }, 'session'),
  refusals: ['SESSION_NOT_FOUND'],
};

export const LIST_SESSIONS: RouteDescription = {
  tag: 'Console',
  summary: 'List sessions',
  about: 'Those of this key or wallet; an ADMIN key sees all of its account.',
  response: jsonResponse('Sessions that stand, newest first.', SessionListResponse, {
    object: 'list',
    data: [
      {
        id: ID,
        kind: 'key',
        keyId: 'key_019aa3f1c0de',
        wallet: null,
        isCurrent: true,
        createdAt: '2026-11-21T04:00:00.000Z',
        lastUsedAt: '2026-11-21T04:10:00.000Z',
        expiresAt: '2026-11-28T04:00:00.000Z',
        userAgent: 'Mozilla/5.0',
        address: '203.0.113.7',
      },
    ],
  }),
};

export const END_SESSION: RouteDescription = {
  tag: 'Console',
  summary: 'End a session',
  parameters: [{ name: 'id', in: 'path', about: 'Id of the session.', example: ID }],
  response: jsonResponse('The session has ended.', EndedResponse, { success: true }),
  refusals: ['SESSION_NOT_FOUND'],
};
