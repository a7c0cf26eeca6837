/**
 * A real OpenID Connect provider (`oidc-provider`) on loopback, with a plain page for signing in. It
 * listens on the name `localhost`, which is another site than the address 127.0.0.1 of the server.
 */
import { generateKeyPairSync } from 'node:crypto';
import { type IncomingMessage, type Server, type ServerResponse, createServer } from 'node:http';
import Provider, { type Configuration } from 'oidc-provider';
import { freePort } from './free-port.ts';

export const CLIENT = { id: 'farebox', secret: 'a secret of the client, 32 bytes' } as const;

export interface OidcUser {
  readonly email?: string;
  readonly email_verified?: boolean;
  readonly name?: string;
  readonly groups?: readonly string[];
}

export interface OidcProvider {
  readonly issuer: string;
  readonly host: string;
  /** Claims by the name that a user enters on the sign-in page; a test can change them. */
  readonly users: Map<string, OidcUser>;
  /** Requests that the provider has received, as `GET /token`. */
  readonly requests: string[];
  stop(): Promise<void>;
}

/** `origin`: of the server whose console is a client. */
export async function startOidcProvider(
  origin: string,
  { port, provider = 'acme' }: { readonly port?: number; readonly provider?: string } = {},
): Promise<OidcProvider> {
  const given = port ?? (await freePort());
  const host = `localhost:${given}`;
  const issuer = `http://${host}`;
  const users = new Map<string, OidcUser>();
  const requests: string[] = [];
  const oidc = new Provider(issuer, {
    ...SETTINGS,
    clients: [
      {
        client_id: CLIENT.id,
        client_secret: CLIENT.secret,
        redirect_uris: [`${origin}/console/sign-in/${provider}`],
        post_logout_redirect_uris: [`${origin}/console/sign-in`],
        grant_types: ['authorization_code'],
        response_types: ['code'],
      },
    ],
    findAccount: (_context, id) => ({
      accountId: id,
      claims: () => ({ sub: id, ...users.get(id) }),
    }),
    // Every user has consented to every scope of the client.
    loadExistingGrant: async ({ oidc: { client, session } }) => {
      if (client === undefined || session?.accountId === undefined) return undefined;
      const grant = new oidc.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope('openid email profile groups');
      await grant.save();
      return grant;
    },
  });
  const serve = oidc.callback();
  const server = createServer((request, response) => {
    requests.push(`${request.method} ${request.url?.split('?')[0]}`);
    if (request.url?.startsWith('/interaction/') === true) void signIn(oidc, request, response);
    else void serve(request, response);
  });
  await new Promise<void>((listening) => server.listen(given, '127.0.0.1', listening));
  return { issuer, host, users, requests, stop: () => stopServer(server) };
}

const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });

const SETTINGS: Configuration = {
  jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), kid: 'test', use: 'sig' }] },
  claims: {
    openid: ['sub'],
    email: ['email', 'email_verified'],
    profile: ['name'],
    groups: ['groups'],
  },
  scopes: ['openid', 'email', 'profile', 'groups'],
  pkce: { required: () => true },
  cookies: { keys: ['a key of the test'] },
  features: {
    devInteractions: { enabled: false },
    rpInitiatedLogout: {
      enabled: true,
      // The page of the package loads a font from another host.
      logoutSource: (context, form) => {
        context.body = `<!doctype html><html lang="en"><title>Sign out</title>${form}<button form="op.logoutForm" name="logout" value="yes">Yes, sign me out</button></html>`;
      },
    },
  },
  interactions: { url: (_context, { uid }) => `/interaction/${uid}` },
  ttl: {
    AccessToken: 600,
    AuthorizationCode: 60,
    IdToken: 600,
    Interaction: 600,
    Session: 600,
    Grant: 600,
  },
};

/** Shows the form of the sign-in, and completes the interaction when it is sent. */
async function signIn(
  oidc: Provider,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (request.method === 'GET') {
    response.setHeader('content-type', 'text/html; charset=utf-8');
    response.end(
      '<!doctype html><html lang="en"><title>Test provider</title><form method="post"><label>User <input name="user"></label><button name="action" value="in">Sign in</button><button name="action" value="cancel">Cancel</button></form></html>',
    );
    return;
  }
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const form = new URLSearchParams(Buffer.concat(chunks).toString());
  const result =
    form.get('action') === 'cancel'
      ? { error: 'access_denied', error_description: 'The user cancelled' }
      : { login: { accountId: form.get('user') ?? '' } };
  await oidc.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
}

async function stopServer(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((closed) => server.close(closed));
}
