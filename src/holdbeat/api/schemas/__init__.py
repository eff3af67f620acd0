"""The shapes of requests and answers, for the documentation and for generated clients.

They document; they do not check. Requests are checked where every way in is checked, in the domain, and answers are
made by `domain/views`: tests hold these models against real answers, so that the two cannot part.
"""
