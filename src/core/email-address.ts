/** The form of an email address: without quotes, spaces, commas and line breaks. */
export const ADDRESS = /^[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}$/;
