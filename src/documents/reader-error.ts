/** Why a document could not be read, as the end of the sentence "… could not be read: it …". */
export class ReaderError extends Error {
  override readonly name = 'ReaderError';
}
