/** A real mail server (`smtp-server`) on loopback that stores the messages it accepts. */
import { SMTPServer } from 'smtp-server';

export interface ReceivedMail {
  readonly to: readonly string[];
  /** Header lines, with folded lines joined. */
  readonly headers: string;
  readonly text: string;
}

export interface MailServer {
  readonly port: number;
  readonly mails: ReceivedMail[];
  /** Status of the response to the recipient; 250 accepts. */
  status: number;
  stop(): Promise<void>;
}

export async function startMailServer(login: {
  readonly user: string;
  readonly password: string;
}): Promise<MailServer> {
  const mails: ReceivedMail[] = [];
  const state = { status: 250 };
  const server = new SMTPServer({
    disabledCommands: ['STARTTLS'],
    allowInsecureAuth: true,
    onAuth: ({ username, password }, _session, done) => {
      const isRight = username === login.user && password === login.password;
      done(isRight ? null : new Error('Wrong login'), isRight ? { user: username } : undefined);
    },
    onRcptTo: (_address, _session, done) => {
      if (state.status === 250) return done();
      done(Object.assign(new Error('rejected'), { responseCode: state.status }));
    },
    onData: (stream, session, done) => {
      const chunks: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => {
        const [head = '', ...rest] = Buffer.concat(chunks).toString('utf8').split('\r\n\r\n');
        const to = session.envelope.rcptTo.map(({ address }) => address);
        const text = rest.join('\n\n').replaceAll('=\r\n', '').replaceAll('=3D', '=');
        mails.push({ to, headers: head.replaceAll(/\r\n[ \t]+/g, ' '), text });
        done();
      });
    },
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve());
  });
  const address = server.server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return Object.assign(state, {
    port: address.port,
    mails,
    stop: async () => {
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
    },
  });
}
