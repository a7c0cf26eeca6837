/**
 * The token endpoint of Google: a TLS server for `oauth2.googleapis.com` behind a proxy. It verifies
 * the assertion of a service account and returns `token-1`, `token-2`, and so on.
 */
import { createVerify, generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { openProxy } from './connect-proxy.ts';
import { listen } from './loopback.ts';
import { GOOGLE_CERTIFICATE, TEST_KEY } from './test-certificate.ts';

const HOST = 'oauth2.googleapis.com';
const EMAIL = 'farebox@acme.iam.gserviceaccount.com';

export type GoogleTokens = Awaited<ReturnType<typeof openGoogleTokens>>;

export async function openGoogleTokens() {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const folder = mkdtempSync(join(tmpdir(), 'google-'));
  const ca = join(folder, 'ca.pem');
  writeFileSync(ca, GOOGLE_CERTIFICATE);
  const tokens = { issued: 0, expiresInSeconds: 3_600, problem: '' };
  const isSigned = (assertion: string): boolean => {
    const [head, claims = '', signature = ''] = assertion.split('.');
    const { iss, scope, aud } = JSON.parse(Buffer.from(claims, 'base64url').toString());
    const isOwn = iss === EMAIL && aud === `https://${HOST}/token`;
    const verifier = createVerify('RSA-SHA256').update(`${head}.${claims}`);
    return (
      isOwn &&
      scope === 'https://www.googleapis.com/auth/cloud-platform' &&
      verifier.verify(publicKey, signature, 'base64url')
    );
  };
  const server = createServer({ key: TEST_KEY, cert: GOOGLE_CERTIFICATE }, (request, response) => {
    void text(request).then((form) => {
      const isValid = isSigned(new URLSearchParams(form).get('assertion') ?? '');
      const problem = isValid ? tokens.problem : 'invalid_grant';
      tokens.issued += 1;
      const token = { access_token: `token-${tokens.issued}`, token_type: 'Bearer' };
      response.writeHead(problem === '' ? 200 : 400, { 'content-type': 'application/json' });
      const body = { ...token, expires_in: tokens.expiresInSeconds };
      response.end(JSON.stringify(problem === '' ? body : { error: problem }));
    });
  });
  const proxy = await openProxy({ [`${HOST}:443`]: await listen(server) });
  const key = privateKey.export({ type: 'pkcs8', format: 'pem' });
  return Object.assign(tokens, {
    engine: { proxy: `http://${proxy.host}`, ca },
    settings: { googleAuthOptions: { credentials: { client_email: EMAIL, private_key: key } } },
    close: () => {
      proxy.close();
      server.close();
      rmSync(folder, { recursive: true });
    },
  });
}
